"""Fixtures of the lifecycle tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
import uvloop

from tests.lifecycle.children import Child, Ended, Zygote


@pytest.fixture(scope="session")
def libuv() -> None:
    """Have libuv open the pipe for signals that it keeps for as long as the process lives."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.sleep(0))


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """A process that has imported everything."""
    made = Zygote()
    yield made
    made.close()


@pytest.fixture
def start(zygote: Zygote) -> Iterator[Callable[[str], Child]]:
    """Start a program of its own; what is left of it after the test is killed."""
    children: list[Child] = []

    def started(script: str) -> Child:
        children.append(zygote.start(script))
        return children[-1]

    yield started
    for child in children:
        child.__exit__(None, None, None)


@pytest.fixture
def run(start: Callable[[str], Child]) -> Callable[[str], Ended]:
    """Run a program of its own to its end."""
    return lambda script: start(script).end()
