"""The second door: torch's DataLoader by name, arguments and results, over headrace's engine.

```python
from headrace.torch import DataLoader  # in place of torch.utils.data

for images, labels in DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4):
    ...
```
"""

from headrace.errors import BatchTimeoutError
from headrace.torch.loader import DataLoader
from headrace.torch.worker_info import StepRng, WorkerInfo, get_worker_info

__all__ = ["BatchTimeoutError", "DataLoader", "StepRng", "WorkerInfo", "get_worker_info"]
