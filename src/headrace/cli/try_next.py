"""Commands that work as they are printed, for whoever has seen the demo."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from headrace.cli.job import FULL

KEPT = "headrace-demo"


def try_next(folder: Path | None, seq_len: int) -> list[tuple[str, str]]:
    """Give three things to do, each with its command for a shell.

    Args:
        folder: Where the shards are kept, if they are; else the first command keeps them.
        seq_len: Tokens of a window in the demo.
    """
    kept = Path(KEPT) if folder is None else folder
    shards = str(kept / "shards")
    look = (
        f"import headrace as hr; loader = hr.Loader(hr.TokenShards({shards!r}, seq_len={seq_len}), "
        "batch_size=4); print(loader.batch_at(12_345)); print(loader.why(12_345)[0])"
    )
    yours = (
        "import headrace as hr; squares = [(n, n * n) for n in range(1000)]; "
        "[print(batch) for batch in hr.Loader(squares, batch_size=250, seed=7)]"
    )
    demo = _shown("headrace", [sys.executable, "-m", "headrace"])
    python = _shown("python", [sys.executable])
    return [
        (
            "Keep the shards in a folder, and train longer:",
            f"{demo} demo --dir {shlex.quote(str(kept))} --steps {2 * FULL.steps}",
        ),
        (
            "Ask those shards for any batch of the run, and where its first row comes from:",
            f"{python} -c {_quoted(look)}",
        ),
        (
            "Load something of your own: a list, arrays, a torch dataset:",
            f"{python} -c {_quoted(yours)}",
        ),
    ]


def _quoted(code: str) -> str:
    """Quote for a shell, in the way that reads best where it is safe."""
    return shlex.quote(code) if set(code) & set('"$`\\!') else f'"{code}"'


def _shown(name: str, otherwise: list[str]) -> str:
    """Give a command's name where a shell finds this environment's, else a path to it."""
    found = shutil.which(name)
    if found is not None and Path(found).parent == Path(sys.executable).parent:
        return name
    path, *arguments = otherwise
    near = os.path.relpath(path)
    return shlex.join([min(near, path, key=len), *arguments])
