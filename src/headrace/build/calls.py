"""Calling user code: a result, or whatever it raised as a value with its place."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar

from headrace.threads import is_interrupt

T = TypeVar("T")

logger = logging.getLogger("headrace")

# Fifty milliseconds are ten steps of a fast training loop, and twice what any call of ours takes.
SLOW_CALLBACK_S = 0.05
_warned: set[str] = set()


class Raised:
    """What user code raised, kept as a value: StopIteration would hang a future, SystemExit
    would end a thread or loop, and either would be lost.

    Attributes:
        error: The exception, with its traceback.
    """

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


def attempt(call: Callable[..., T], *args: Any) -> T | Raised:
    """Call user code and give its result or what it raised.

    Only Ctrl-C passes, on the main thread, where Python delivers it to whatever runs.
    """
    try:
        return call(*args)
    except BaseException as error:
        if is_interrupt(error):
            raise
        return Raised(error)


async def attempt_awaited(call: Callable[..., Awaitable[T]], *args: Any) -> T | Raised:
    """Await user code and give its result or what it raised.

    A cancellation that was asked for passes; one that was not is an error like any other. A
    stretch without `await` of over 50 ms holds up every other read and is named in a warning.
    """
    try:
        return await _Watched(call(*args), call)
    except BaseException as error:
        task = asyncio.current_task()
        if is_interrupt(error) or (
            isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling()
        ):
            raise
        return Raised(error)


def is_awaited(call: Callable[..., Any]) -> bool:
    """Whether a function, or an object that is called as one, must be awaited."""
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - whether it is async, not whether it is
    )


class _Watched(Generic[T]):
    """An awaitable that times every stretch between two waits of another."""

    def __init__(self, inner: Awaitable[T], call: Callable[..., Any]) -> None:
        self._inner = inner
        self._call = call

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._inner.__await__()
        resume: Callable[[], Any] = partial(next, steps)
        while True:
            began = time.perf_counter()
            try:
                waited_for = resume()
            except StopIteration as end:
                self._check(began)
                value: T = end.value
                return value
            self._check(began)
            try:
                yield waited_for
                resume = partial(next, steps)
            except BaseException as error:
                throw = getattr(steps, "throw", None)
                if throw is None:
                    raise
                resume = partial(throw, error)

    def _check(self, began: float) -> None:
        took_s = time.perf_counter() - began
        if took_s <= SLOW_CALLBACK_S:
            return
        name = _name_of(self._call)
        if name not in _warned:
            _warned.add(name)
            logger.warning(
                "%s held up the event loop for %.0f ms without an await; every read waits "
                "meanwhile. Move the work to `decode`, or to a thread.",
                name,
                took_s * 1e3,
            )


def _name_of(call: Callable[..., Any]) -> str:
    """Name a function as its author knows it, behind what adapts a dataset of another kind."""
    subject = getattr(getattr(call, "__self__", None), "subject", None)
    if subject is not None:
        return f"{type(subject).__qualname__}.{call.__name__}"
    return getattr(call, "__qualname__", repr(call))
