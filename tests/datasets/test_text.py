"""Characters of a text."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headrace.datasets import Text
from headrace.errors import ConfigError, FormatError, NotFoundError
from headrace.testing.dataset_reads import delivered_rows


def test_windows_are_shifted_by_one() -> None:
    """Target is the text one character on; the tail is dropped (S0-13)."""
    text = Text.from_string("hello world!", 4)

    rows = delivered_rows(text, [0, 1])

    assert [text.decode(row["input"]) for row in rows] == ["hell", "o wo"]
    assert [text.decode(row["target"]) for row in rows] == ["ello", " wor"]
    assert (len(text), text.total_tokens) == (2, 12)
    assert rows[0]["input"].dtype == torch.int64


def test_the_vocabulary_is_sorted() -> None:
    """Ids number the characters that occur, by code point (S0-13)."""
    text = Text.from_string("banana split", 3)

    assert text.vocabulary == " abilnpst"
    assert text.encode("nab").tolist() == [5, 1, 2]


@given(st.text(min_size=2))
def test_encoding_and_decoding_undo_each_other(written: str) -> None:
    """For any text, surrogates and all (S0-13)."""
    text = Text.from_string(written, 1)

    assert text.decode(text.encode(written)) == written
    row = delivered_rows(text, [len(text) - 1])[0]
    assert text.decode([*row["input"], *row["target"]]) == written[-2:]


def test_many_characters_need_wider_ids() -> None:
    """The stored dtype fits the vocabulary; the delivered one is int64."""
    text = Text.from_string("".join(map(chr, range(300))), 299)

    assert text.layout[0].dtype == np.uint16
    assert delivered_rows(text, [0])[0]["target"].tolist() == list(range(1, 300))


def test_a_file_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    """Missing, a directory, no path at all."""
    with pytest.raises(NotFoundError, match=r"'nope\.txt' is not in") as caught:
        Text(tmp_path / "nope.txt", 4)
    assert isinstance(caught.value, FileNotFoundError)
    with pytest.raises(FormatError, match=r"wanted a text file, found a directory"):
        Text(tmp_path, 4)
    with pytest.raises(ConfigError, match=r"path: wanted a path.* got 5"):
        Text(5, 4)  # type: ignore[arg-type]


def test_a_file_keeps_its_line_ends(tmp_path: Path) -> None:
    """So the ids are the same on every machine."""
    (tmp_path / "a.txt").write_bytes("é\r\nx".encode())

    text = Text(tmp_path / "a.txt", 3)

    assert text.vocabulary == "\n\rxé"
    assert str(text.locate(0)) == "a.txt, characters [0, 4)"
    assert pickle.loads(pickle.dumps(text)).encode("x").tolist() == [2]


def test_what_cannot_be_windows_is_refused(tmp_path: Path) -> None:
    """Each error names file or text, and the cause."""
    (tmp_path / "a.txt").write_bytes(b"ab\xff")

    with pytest.raises(FormatError, match=r"a\.txt: wanted UTF-8 text, found other bytes at 2"):
        Text(tmp_path / "a.txt", 1)
    with pytest.raises(FormatError, match=r"at least 3 \+ 1 characters, found 3"):
        Text.from_string("abc", 3)
    with pytest.raises(FormatError, match="found 0"):
        Text.from_string("", 3)
    with pytest.raises(ConfigError, match="seq_len: wanted an int >= 1, got 0"):
        Text.from_string("abc", 0)
    with pytest.raises(FileNotFoundError):
        Text(tmp_path / "b.txt", 1)
    with pytest.raises(ValueError, match="'x' does not occur"):
        Text.from_string("abc", 2).encode("ax")


def test_another_text_has_another_fingerprint() -> None:
    """Even of equal length and vocabulary."""
    one, two = Text.from_string("abab", 1), Text.from_string("abba", 1)

    assert one.fingerprint() != two.fingerprint()
    assert one.fingerprint() != one.select("input").fingerprint()
