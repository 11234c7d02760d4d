"""An error of a sample is also of the class that was raised, in text and in a pickle."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

import headrace as hr
from headrace.errors import FormatError, TooManyBadSamplesError


class PickyError(Exception):
    """An error with a constructor of its own, which raises what it likes."""

    def __init__(self, code: Any) -> None:
        super().__init__(str({17: "seventeen"}[code]))


class SealedError(Exception):
    """An error that nobody may make classes of."""

    def __init_subclass__(cls) -> None:
        raise TypeError("sealed")


class Raising:
    """Sample 3 raises; the others are their index."""

    thread_safe = True

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 3:
            raise self.error
        return index


def raised_by(error: Exception) -> hr.SampleError:
    with (
        hr.Loader(Raising(error), 2, shuffle=False) as loader,
        pytest.raises(hr.SampleError) as caught,
    ):
        list(loader)
    return caught.value


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("label"), "KeyError: 'label'"),
        (ValueError("cut off"), "ValueError: cut off"),
        (PermissionError(13, "denied", "a.bin"), "PermissionError: [Errno 13] denied: 'a.bin'"),
    ],
)
def test_the_sentence_reads_alike_whatever_was_raised(error: Exception, text: str) -> None:
    """No quotes around it for a KeyError, no errno of its own for an OSError."""
    found = raised_by(error)

    assert isinstance(found, type(error))
    assert str(found).startswith(f"step 1, sample 3: {text} (")


@pytest.mark.parametrize("error", [KeyError("label"), OSError("gone"), PickyError(17)], ids=repr)
def test_an_error_of_a_sample_can_be_pickled(error: Exception) -> None:
    """It comes back of the same class, with its sentence and its facts."""
    found = raised_by(error)

    back = pickle.loads(pickle.dumps(found))

    assert type(back) is type(found)
    assert (str(back), back.step, back.index) == (str(found), 1, 3)


def test_a_class_that_cannot_be_joined_stays_the_cause() -> None:
    """Whatever its class refuses, the error is not hidden."""
    found = raised_by(SealedError("sealed"))

    assert type(found) is hr.SampleError
    assert isinstance(found.__cause__, SealedError)


def test_a_constructor_of_any_kind_is_no_hindrance() -> None:
    """The class is joined without calling it."""
    found = raised_by(PickyError(17))

    assert isinstance(found, PickyError)
    assert isinstance(found.__cause__, PickyError)


class Parsing(Raising):
    """Sample 3 fails inside of Python's own json."""

    def __getitem__(self, index: int) -> Any:
        return json.loads("{" if index == 3 else "1")


def test_the_line_named_is_one_of_the_user() -> None:
    """Not the one of Python's own modules in which the error was raised."""
    with (
        hr.Loader(Parsing(ValueError()), 2, shuffle=False) as loader,
        pytest.raises(hr.SampleError, match=r"test_sample_errors\.py:\d+, in __getitem__\)$"),
    ):
        list(loader)


def test_a_stop_of_the_text_found_is_not_doubled() -> None:
    """What a library says may be a sentence."""
    assert str(FormatError("a", "b", "c.")) == "a: wanted b, found c."
    assert "the last: c. Look at" in str(TooManyBadSamplesError(1, "c.", 2))
