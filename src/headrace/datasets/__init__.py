"""Where samples come from: the contracts, the bundled datasets, and how to combine them."""

from headrace.datasets.adapt import as_dataset
from headrace.datasets.arrays import Arrays
from headrace.datasets.cifar import Cifar10, Cifar10Disk
from headrace.datasets.compose import Concat, Subset, split
from headrace.datasets.dataset import (
    BatchDataset,
    BulkDataset,
    Column,
    Dataset,
    Layout,
    Location,
    RaggedColumn,
)
from headrace.datasets.idx import read_idx
from headrace.datasets.image_folder import ImageFolder
from headrace.datasets.image_manifest import ImageManifest
from headrace.datasets.mnist import Mnist
from headrace.datasets.parquet import Parquet
from headrace.datasets.ragged import Ragged
from headrace.datasets.records import Records
from headrace.datasets.text import Text
from headrace.datasets.token_shards import TokenShards

__all__ = [
    "Arrays",
    "BatchDataset",
    "BulkDataset",
    "Cifar10",
    "Cifar10Disk",
    "Column",
    "Concat",
    "Dataset",
    "ImageFolder",
    "ImageManifest",
    "Layout",
    "Location",
    "Mnist",
    "Parquet",
    "Ragged",
    "RaggedColumn",
    "Records",
    "Subset",
    "Text",
    "TokenShards",
    "as_dataset",
    "read_idx",
    "split",
]
