"""Labelled token sequences, and language-model targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

import headrace as hr
from tests.collate.keys import keys_of


@dataclass
class Review:
    tokens: list[int]
    label: int


def text(*samples: Any, **knobs: Any) -> dict[str, Any]:
    """Collate samples that have the indices 10, 11, ..."""
    made = hr.TextCollator(**knobs)(samples, keys_of(range(10, 10 + len(samples))))
    return dict(zip(made.names, made.values, strict=True))


def next_tokens(*samples: Any, field: Any = None, **knobs: Any) -> dict[str, Any]:
    keys = keys_of(range(10, 10 + len(samples)))
    made = hr.NextTokenCollator(field, **knobs)(samples, keys)
    return dict(zip(made.names, made.values, strict=True))


@pytest.mark.parametrize(
    "pair", [lambda t, y: (t, y), lambda t, y: {"tokens": t, "label": y}, Review]
)
@pytest.mark.parametrize("vector", [list, np.array, torch.tensor, lambda t: np.array(t, np.uint8)])
def test_text_becomes_tokens_lengths_mask_and_labels(pair: Any, vector: Any) -> None:
    """0 is a token like any other, in every form of sample (S4-33)."""
    batch = text(pair(vector([0, 2, 3]), 1), pair(vector([4]), 0))

    assert list(batch) == ["tokens", "lengths", "mask", "labels"]
    assert batch["tokens"].tolist() == [[0, 2, 3], [4, 0, 0]]
    assert batch["mask"].tolist() == [[True, True, True], [True, False, False]]
    assert (batch["lengths"].tolist(), batch["labels"].tolist()) == ([3, 1], [1, 0])
    dtypes = [column.dtype for column in batch.values()]
    assert dtypes == [torch.int64, torch.int64, torch.bool, torch.int64]


def test_numpy_and_torch_read_the_same_batch() -> None:
    """Columns are tensors that share their memory with arrays (S4-33)."""
    tokens = text(([1, 2], 0))["tokens"]

    tokens.numpy()[0, 1] = 9

    assert tokens.tolist() == [[1, 9]]


def test_text_of_nothing_is_refused() -> None:
    """A batch without samples, and one whose samples are all empty (S4-34)."""
    with pytest.raises(hr.CollateError, match="at least one sample"):
        text()
    with pytest.raises(hr.CollateError, match="every row of the batch is empty"):
        text(([], 0), (np.array([], np.int64), 1))


def test_single_texts_may_be_empty() -> None:
    """Their rows are all padding (S4-34)."""
    batch = text(([], 0), ([5], 1), pad_value=-1)

    assert (batch["tokens"].tolist(), batch["lengths"].tolist()) == ([[-1], [5]], [0, 1])


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([[1, 2]], "field 'tokens': sample 11 gives a list of length 1, wanted a vector."),
        (5, "field 'tokens': sample 11 gives the int 5, wanted a vector."),
        (np.zeros((2, 2), int), "field 'tokens': sample 11 gives int64 of shape (2, 2), wanted"),
        ("hello", "field 'tokens': sample 11 gives a str, wanted a vector."),
    ],
)
def test_tokens_are_vectors(tokens: Any, message: str) -> None:
    """Anything else names its sample (S4-34)."""
    with pytest.raises(hr.CollateError) as caught:
        text(([1], 0), (tokens, 1))

    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([0.5], "sample 10 gives numbers of float64, wanted whole numbers"),
        ([True], "sample 10 gives numbers of bool, wanted whole numbers"),
        (np.array([1, 2**63], np.uint64), "sample 10 gives 9223372036854775808, which int64"),
    ],
)
def test_tokens_are_whole_numbers_that_fit(tokens: Any, message: str) -> None:
    """A cast would cut 0.5 to 0 and wrap 2^63 in silence."""
    with pytest.raises(hr.CollateError, match=message):
        text((tokens, 0))


def test_the_sample_at_fault_is_named_among_others() -> None:
    """Tokens lie end to end by then, empty samples included."""
    big = np.array([7, 2**63 + 1], np.uint64)
    some = np.array([1], np.uint64)

    with pytest.raises(hr.CollateError) as caught:
        text((some, 0), (some[:0], 0), (big, 0), (some, 0))

    assert caught.value.indices == (12,)


def test_a_sample_has_tokens_and_a_label() -> None:
    """One of another form names itself."""
    with pytest.raises(hr.CollateError, match=r"mapping with keys \['tokens'\], wanted 'tok"):
        text(([1], 0), {"tokens": [1]})


def test_text_may_be_cut_and_padded_to_one_width() -> None:
    """The knobs are those of all padding."""
    batch = text(
        ([1, 2, 3], 0), ([4], 1), max_length=2, too_long="cut", pad_to="max_length", multiple=4
    )

    assert batch["tokens"].tolist() == [[1, 2, 0, 0], [4, 0, 0, 0]]
    assert batch["lengths"].tolist() == [2, 1]


def test_every_token_but_the_first_is_a_target() -> None:
    """Inputs and targets are shifted by one; padding is the index that losses ignore (S4-36)."""
    batch = next_tokens([5, 6, 7, 8], [9, 0])

    assert list(batch) == ["input", "target", "lengths", "mask"]
    assert batch["input"].tolist() == [[5, 6, 7], [9, 0, 0]]
    assert batch["target"].tolist() == [[6, 7, 8], [0, -100, -100]]
    assert batch["lengths"].tolist() == [3, 1]
    assert batch["mask"].tolist() == [[True, True, True], [True, False, False]]


def test_padded_targets_do_not_count_in_a_loss() -> None:
    """The mean of torch's cross entropy is over real targets only (S4-36)."""
    batch = next_tokens([1, 2, 3], [2, 1])
    scores = torch.randn(2, 2, 4)

    loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), batch["target"].flatten())

    each = torch.nn.functional.cross_entropy(
        scores.flatten(0, 1), batch["target"].flatten(), reduction="none"
    )
    assert torch.allclose(loss, hr.masked_mean(each, batch["mask"].flatten()))


@pytest.mark.parametrize(
    ("field", "samples"),
    [
        (None, [[1, 2], [3, 4]]),
        ("ids", [{"ids": [1, 2]}, {"ids": [3, 4]}]),
        (1, [("a", [1, 2]), ("b", [3, 4])]),
    ],
)
def test_tokens_may_be_a_part_of_a_sample(field: Any, samples: list[Any]) -> None:
    """The sample itself, a key, or a position."""
    batch = next_tokens(*samples, field=field)

    assert (batch["input"].tolist(), batch["target"].tolist()) == ([[1], [3]], [[2], [4]])


def test_a_mapping_in_place_of_tokens_says_to_name_the_key() -> None:
    """With the keys that it has."""
    with pytest.raises(
        hr.CollateError, match=r"sample 10 gives a mapping with keys \['ids'\].*key"
    ):
        next_tokens({"ids": [1, 2]})


def test_a_sequence_of_one_token_has_no_target() -> None:
    """Its row is empty; a batch of such rows has nothing to learn from (S4-34, S4-36)."""
    batch = next_tokens([7], [], [8, 9], pad_value=3, ignore_index=-1)

    assert batch["input"].tolist() == [[3], [3], [8]]
    assert batch["target"].tolist() == [[-1], [-1], [9]]
    with pytest.raises(hr.CollateError, match="every row of the batch is empty"):
        next_tokens([7], [])


def test_the_length_of_a_row_is_that_of_its_targets() -> None:
    """max_length counts positions, and a cut keeps the beginning."""
    batch = next_tokens([1, 2, 3, 4], [5, 6], max_length=2, too_long="cut")

    assert batch["input"].tolist() == [[1, 2], [5, 0]]
    assert batch["target"].tolist() == [[2, 3], [6, -100]]
    with pytest.raises(hr.CollateError, match="sample 10 has 3 elements, wanted at most max_len"):
        next_tokens([1, 2, 3, 4], max_length=2)


def test_a_missing_part_is_named() -> None:
    """With the sample that lacks it."""
    with pytest.raises(hr.CollateError, match=r"mapping with keys \['tokens'\], wanted 'ids'"):
        next_tokens({"tokens": [1, 2]}, field="ids")


@pytest.mark.parametrize("knob", ["pad_value", "ignore_index"])
@pytest.mark.parametrize("value", [0.5, None, 2**63])
def test_pads_are_whole_numbers(knob: str, value: Any) -> None:
    """Refused where the collator is made."""
    with pytest.raises(hr.ConfigError, match=knob):
        hr.NextTokenCollator(**{knob: value})
