"""Calling user code: a result, or whatever it raised as a value with its place."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from headrace.errors import HeadraceError, SampleError

T = TypeVar("T")

logger = logging.getLogger("headrace")

# Fifty milliseconds are ten steps of a fast training loop, and twice what any call of ours takes.
SLOW_CALLBACK_S = 0.05
_warned: set[str] = set()
_classes: dict[type[BaseException], type[SampleError]] = {}

_PACKAGE = str(Path(__file__).parent.parent)

# Classes that mean something to whoever iterates (the end of a loop, a cancelled task, the end
# of the program), so an error of a sample must not also be one of them.
_CONTROL = (StopIteration, StopAsyncIteration, GeneratorExit, asyncio.CancelledError)


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
        if _is_interrupt(error):
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
        if _is_interrupt(error) or (
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


def sample_error(
    error: BaseException, step: int, index: int | None, where: str = ""
) -> BaseException:
    """Give the error that the consumer meets at a step, with the original as its cause.

    It is a SampleError and also of the original's class, so that `except ValueError` works.
    Frames of the original are cleared: a kept error must not keep a sample alive.
    """
    if isinstance(error, SampleError):
        return error
    line = _user_line(error)
    traceback.clear_frames(error.__traceback__)
    text = f"{type(error).__name__}: {error}{line}"
    made = _class_for(type(error))(step, index, where, text)
    made.__cause__ = error
    return made


def _class_for(kind: type[BaseException]) -> type[SampleError]:
    if kind not in _classes:
        _classes[kind] = _make_class(kind)
    return _classes[kind]


def _make_class(kind: type[BaseException]) -> type[SampleError]:
    if not issubclass(kind, Exception) or issubclass(kind, _CONTROL):
        return SampleError

    def reduce(error: SampleError) -> tuple[Any, ...]:
        return _unpickled, (kind, error.args, error.__dict__)

    # Text as of any exception: KeyError would show the repr of the sentence.
    body = {
        "__module__": SampleError.__module__,
        "__reduce__": reduce,
        "__str__": Exception.__str__,
    }
    bases = (SampleError,) if issubclass(SampleError, kind) else (SampleError, kind)
    try:
        made = type(f"Sample{kind.__name__}", bases, body)
        made(0, 0, "", "")
        return made
    except Exception:  # noqa: BLE001 - a constructor of the user may raise anything
        # Some classes have a layout or constructor of their own (UnicodeDecodeError).
        return SampleError


def _unpickled(
    kind: type[BaseException], args: tuple[Any, ...], facts: dict[str, Any]
) -> SampleError:
    made = _class_for(kind)
    error = made.__new__(made)
    error.args = args
    error.__dict__.update(facts)
    return error


def _user_line(error: BaseException) -> str:
    """Name the innermost line outside this package, the one that the user can change."""
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if not frame.filename.startswith(_PACKAGE):
            return f" ({frame.filename}:{frame.lineno}, in {frame.name})"
    return ""


def _is_interrupt(error: BaseException) -> bool:
    return (
        isinstance(error, KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
    )


def is_ours(error: BaseException) -> bool:
    """Whether an error already says what headrace has to say."""
    return isinstance(error, HeadraceError)
