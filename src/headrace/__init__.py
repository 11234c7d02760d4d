"""headrace streams training data onto the accelerator: exact order, exact resume.

```python
import headrace as hr

loader = hr.Loader(hr.TokenShards("shards/", seq_len=1024), batch_size=64, seed=42)
for epoch in loader.epochs(3):
    for batch in epoch:
        train_step(batch["input"], batch["target"])
```
"""

from typing import TYPE_CHECKING, Any

from headrace import images
from headrace.batch import Batch
from headrace.collate import Columns, default_collate
from headrace.collators import (
    ImageCollator,
    NextTokenCollator,
    PadCollator,
    TextCollator,
    gray8_to_planar,
    masked_mean,
    padding_stats,
    planned_padding,
    rgb8_to_planar,
)
from headrace.config import check_platform
from headrace.datasets import (
    Arrays,
    BatchDataset,
    BulkDataset,
    Cifar10,
    Cifar10Disk,
    Column,
    Concat,
    Dataset,
    ImageFolder,
    ImageManifest,
    Location,
    Mnist,
    Parquet,
    Ragged,
    RaggedColumn,
    Records,
    Subset,
    Text,
    TokenShards,
    read_idx,
    split,
)
from headrace.errors import (
    ClosedError,
    CollateError,
    ConfigError,
    DataError,
    ForkedError,
    FormatError,
    HeadraceError,
    LoopRunningError,
    NotFoundError,
    PurityError,
    RowErrors,
    SampleError,
    SecondConsumerError,
    SourceChangedError,
    SourceError,
    StateError,
    TooManyBadSamplesError,
)
from headrace.explain import Explanation
from headrace.loader import Loader
from headrace.memory_estimate import MemoryEstimate
from headrace.origin import PickOrigin
from headrace.pick import PickKey, PickKeys, Picks
from headrace.rng import SampleRng, derive, mix
from headrace.samplers import (
    BlockShuffled,
    Bucketed,
    Mixing,
    Sampler,
    Sequential,
    Shuffled,
)
from headrace.stream import BatchStream

if TYPE_CHECKING:
    from headrace import torch as torch

check_platform()

__version__ = "0.1.0"

__all__ = [
    "Arrays",
    "Batch",
    "BatchDataset",
    "BatchStream",
    "BlockShuffled",
    "Bucketed",
    "BulkDataset",
    "Cifar10",
    "Cifar10Disk",
    "ClosedError",
    "CollateError",
    "Column",
    "Columns",
    "Concat",
    "ConfigError",
    "DataError",
    "Dataset",
    "Explanation",
    "ForkedError",
    "FormatError",
    "HeadraceError",
    "ImageCollator",
    "ImageFolder",
    "ImageManifest",
    "Loader",
    "Location",
    "LoopRunningError",
    "MemoryEstimate",
    "Mixing",
    "Mnist",
    "NextTokenCollator",
    "NotFoundError",
    "PadCollator",
    "Parquet",
    "PickKey",
    "PickKeys",
    "PickOrigin",
    "Picks",
    "PurityError",
    "Ragged",
    "RaggedColumn",
    "Records",
    "RowErrors",
    "SampleError",
    "SampleRng",
    "Sampler",
    "SecondConsumerError",
    "Sequential",
    "Shuffled",
    "SourceChangedError",
    "SourceError",
    "StateError",
    "Subset",
    "Text",
    "TextCollator",
    "TokenShards",
    "TooManyBadSamplesError",
    "default_collate",
    "derive",
    "gray8_to_planar",
    "images",
    "masked_mean",
    "mix",
    "padding_stats",
    "planned_padding",
    "read_idx",
    "rgb8_to_planar",
    "split",
]


def __getattr__(name: str) -> Any:
    """Give the second door, `headrace.torch`, which is imported when it is asked for."""
    if name == "torch":
        import headrace.torch

        return headrace.torch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
