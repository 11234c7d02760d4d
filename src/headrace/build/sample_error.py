"""The error that a consumer meets at a step, made from the one that was raised there."""

from __future__ import annotations

import asyncio
import contextlib
import sysconfig
import traceback
from pathlib import Path
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

from headrace.errors import SampleError

_PACKAGE = str(Path(__file__).parent.parent)
_PATHS = sysconfig.get_paths()
# Where Python's own modules are; of those that it holds frozen there are no files.
_PYTHON = (_PATHS["stdlib"], _PATHS["platstdlib"], "<frozen ")
# Often a folder of the first.
_LIBRARIES = (_PATHS["purelib"], _PATHS["platlib"])

# Classes that mean something to whoever iterates (the end of a loop, a cancelled task, the end
# of the program), so an error of a sample must not also be one of them; nor may it be a group,
# which `except` does not look into.
_CONTROL = (
    StopIteration,
    StopAsyncIteration,
    GeneratorExit,
    asyncio.CancelledError,
    BaseExceptionGroup,
)
_classes: dict[type[BaseException], type[SampleError]] = {}


def sample_error(
    error: BaseException, step: int, index: int | None, where: str = ""
) -> SampleError:
    """Give the error that the consumer meets at a step, with the original as its cause.

    It is a SampleError and also of the original's class, with its facts, so that
    `except OSError as error: error.errno` works. Frames of the original are cleared: a kept
    error must not keep a sample alive.
    """
    line = _user_line(error)
    traceback.clear_frames(error.__traceback__)
    made = _class_for(type(error))(step, index, where, f"{type(error).__name__}: {error}{line}")
    _copy_facts(error, made)
    made.__cause__ = error
    return made


def _class_for(kind: type[BaseException]) -> type[SampleError]:
    made = _classes.get(kind)
    if made is None:
        made = _classes[kind] = _make_class(kind)
    return made


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
    if issubclass(SampleError, kind):
        return SampleError
    bases = (kind,) if issubclass(kind, SampleError) else (SampleError, kind)
    try:
        made: type[SampleError] = type(f"Sample{kind.__name__}", bases, body)
        made(0, None, "", "")
    except Exception:  # noqa: BLE001 - a class of the user may refuse in any way
        return SampleError
    return made


def _copy_facts(error: BaseException, made: SampleError) -> None:
    """Copy what the original knows: its attributes, and those that C classes keep apart."""
    made.__dict__.update({**error.__dict__, **made.__dict__})
    for kind in set(type(error).__mro__) - set(SampleError.__mro__):
        for name, member in vars(kind).items():
            if isinstance(member, GetSetDescriptorType | MemberDescriptorType):
                with contextlib.suppress(Exception):
                    setattr(made, name, getattr(error, name))


def _unpickled(
    kind: type[BaseException], args: tuple[Any, ...], facts: dict[str, Any]
) -> SampleError:
    error = _class_for(kind)(0, None, "", "")
    error.args = args
    error.__dict__.update(facts)
    return error


def _user_line(error: BaseException) -> str:
    """Name the innermost line that the user can change; else one of a library of theirs.

    Lines of this package and of Python itself are never named.
    """
    frames = traceback.extract_tb(error.__traceback__)
    found = [f for f in reversed(frames) if not f.filename.startswith(_PACKAGE)]
    own = [f for f in found if not f.filename.startswith((*_PYTHON, *_LIBRARIES))]
    libraries = [f for f in found if f.filename.startswith(_LIBRARIES)]
    for frame in own or libraries:
        return f" ({frame.filename}:{frame.lineno}, in {frame.name})"
    return ""
