"""The worlds that seeds are played in, and how often a mutant is found in one."""

from __future__ import annotations

import gc
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from tests.proof.block_world import play_blocks
from tests.proof.interleave import Interleaving
from tests.proof.loader_world import play_loader
from tests.proof.mutant import Mutant
from tests.proof.ring_world import play_ring

WORLDS: dict[str, Callable[[int], Interleaving]] = {
    "ring": play_ring,
    "blocks": play_blocks,
    "loader": play_loader,
}


def play_all(world: str, seeds: Iterable[int]) -> None:
    """Play every seed; raise what the first one to fail found, with what replays it."""
    with quiet_collector():
        for seed in seeds:
            try:
                WORLDS[world](seed)
            except BaseException as error:
                error.add_note(f"replay: tests.proof.worlds.WORLDS[{world!r}]({seed})")
                raise


def kills(mutant: Mutant, seeds: Iterable[int], enough: int | None = None) -> int:
    """Count the seeds that find a mutant; stop when there are enough."""
    found = 0
    with quiet_collector(), _unheard():
        for seed in seeds:
            found += _finds(mutant, seed)
            if found == enough:
                break
        gc.collect()
    return found


def _finds(mutant: Mutant, seed: int) -> bool:
    with mutant.applied():
        try:
            WORLDS[mutant.world](seed)
        except Exception:
            return True
        return False


@contextmanager
def quiet_collector() -> Iterator[None]:
    """Collect often at little cost: what is alive at first is left out."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _unheard() -> Iterator[None]:
    """Let what broken runs leave behind (tasks, loops) complain to nobody when it is collected."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    for name in ("asyncio", "headrace"):
        logging.getLogger(name).disabled = True
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        for name in ("asyncio", "headrace"):
            logging.getLogger(name).disabled = False
        sys.unraisablehook = hook
