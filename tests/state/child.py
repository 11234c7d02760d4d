"""A training process of its own: `python -m tests.state.child`, its jobs on the standard input.

The input is one JSON list of jobs: `loader`, the arguments of `loaders.loader`; `state`, what to
load before, or none; `face`, "for" or "async for"; `take`, how many batches at most. Each batch is
one line on the standard output, written before the next is asked for, and each job ends with
a line `null`. A parent that kills the process goes on from the last state that it has read.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from typing import Any

from tests.state import loaders


def main() -> None:
    for job in json.loads(sys.stdin.readline()):
        do(job)
        tell(None)


def do(job: dict[str, Any]) -> None:
    with loaders.loader(**job.get("loader", {})) as made:
        if job.get("state") is not None:
            made.load_state_dict(job["state"], allow=job.get("allow", ()))
        epochs = job.get("epochs", loaders.EPOCHS)
        if job.get("face") == "async for":
            taken: Any = asyncio.run(loaders.run_awaited(made, epochs))
        else:
            taken = loaders.run(made, epochs)
        for batch, state in itertools.islice(taken, job.get("take")):
            tell([batch, state])


def tell(line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
