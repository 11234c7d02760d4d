"""The token shards of the demo: the same on every call, kept, checked, never half there."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from headrace.cli import corpus
from headrace.errors import ConfigError, NotFoundError

TEXTS = {
    "b.py": b"two",
    "a.py": b"one",
    "pack/c.py": b"\xffthree",
    "site-packages/other.py": b"not ours",
    "__pycache__/d.py": b"compiled",
    "notes.txt": b"no source",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    for name, text in TEXTS.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text)
    return root


def tokens_in(folder: Path) -> list[int]:
    return np.concatenate([np.load(file) for file in sorted(folder.glob("*.npy"))]).tolist()


def test_files_follow_each_other_in_the_order_of_their_paths(source: Path, tmp_path: Path) -> None:
    """Bytes become tokens as they are, and each file ends with a token of its own."""
    made = corpus.build(tmp_path / "shards", 1000, source)

    assert tokens_in(tmp_path / "shards") == [*b"one", 256, *b"two", 256, *b"\xffthree", 256]
    assert (made.files, made.text_bytes, made.tokens) == (3, 12, 15)


def test_shards_are_cut_between_files(source: Path, tmp_path: Path) -> None:
    """A shard is full once it has its share of the text."""
    corpus.build(tmp_path / "shards", 18, source)

    shards = [np.load(file).tolist() for file in sorted((tmp_path / "shards").glob("*.npy"))]
    assert shards == [[*b"one", 256], [*b"two", 256], [*b"\xffthree", 256]]


def test_text_is_taken_in_whole_files_up_to_the_bound(source: Path, tmp_path: Path) -> None:
    """The first file that does not fit ends the corpus."""
    made = corpus.build(tmp_path / "shards", 8, source)

    assert (made.files, made.text_bytes) == (2, 6)


def test_a_file_that_cannot_be_read_is_left_out(source: Path, tmp_path: Path) -> None:
    """A link to nothing is like a file that one may not read."""
    os.symlink(source / "gone", source / "aa.py")

    assert corpus.build(tmp_path / "shards", 1000, source).files == 3


def test_the_standard_library_gives_the_same_shards_twice(tmp_path: Path) -> None:
    """Names, sizes and digests agree: the order of folders on disk plays no part."""
    first = corpus.build(tmp_path / "first", 1 << 20)
    second = corpus.build(tmp_path / "second", 1 << 20)

    assert first == second
    assert first.text_bytes > (1 << 20) * 3 // 4
    assert len(first.shards) > 1


def test_a_finished_corpus_is_found_again(source: Path, tmp_path: Path) -> None:
    """The manifest brings back all that `build` said."""
    made = corpus.build(tmp_path / "shards", 1000, source)

    assert corpus.find(tmp_path / "shards", 1000, source) == made


def test_a_corpus_of_another_recipe_is_not_found(source: Path, tmp_path: Path) -> None:
    """Another bound on the text, or another source, means other tokens."""
    corpus.build(tmp_path / "shards", 1000, source)

    assert corpus.find(tmp_path / "shards", 999, source) is None
    assert corpus.find(tmp_path / "shards", 1000) is None


def test_one_wrong_byte_in_a_shard_is_found(source: Path, tmp_path: Path) -> None:
    """A corpus is used again only when every byte is as it was written."""
    made = corpus.build(tmp_path / "shards", 1000, source)
    shard = tmp_path / "shards" / made.shards[0].name
    right = shard.read_bytes()

    shard.write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    assert corpus.find(tmp_path / "shards", 1000, source) is None

    assert corpus.build(tmp_path / "shards", 1000, source) == made
    assert shard.read_bytes() == right


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"shards": 3}', '{"shards": [{}]}'])
def test_a_broken_manifest_is_no_corpus(source: Path, tmp_path: Path, text: str) -> None:
    """Whatever the file holds, the answer is that there is none."""
    corpus.build(tmp_path / "shards", 1000, source)

    (tmp_path / "shards" / "manifest.json").write_text(text)

    assert corpus.find(tmp_path / "shards", 1000, source) is None


def test_shards_of_a_longer_corpus_do_not_stay(source: Path, tmp_path: Path) -> None:
    """A loader that takes the whole folder gets this corpus and nothing of the last one."""
    corpus.build(tmp_path / "shards", 18, source)
    corpus.build(tmp_path / "shards", 1000, source)

    names = [path.name for path in (tmp_path / "shards").glob("*.npy")]
    assert names == ["shard-000.npy"]


def test_files_of_others_stay(source: Path, tmp_path: Path) -> None:
    """A folder in use for something else is refused, before anything is taken away."""
    made = corpus.build(tmp_path / "shards", 1000, source)
    (tmp_path / "shards" / "mine.npy").write_bytes(b"mine")

    with pytest.raises(ConfigError, match=r"--dir: .*'mine.npy'"):
        corpus.build(tmp_path / "shards", 999, source)

    (tmp_path / "shards" / "mine.npy").unlink()
    assert corpus.find(tmp_path / "shards", 1000, source) == made


def test_a_python_without_source_is_told_apart(tmp_path: Path) -> None:
    """The error names the folder where the text should be."""
    with pytest.raises(NotFoundError, match="came without its source"):
        corpus.build(tmp_path / "shards", 1000, tmp_path / "empty")


def test_a_corpus_says_what_it_was_made_from(source: Path, tmp_path: Path) -> None:
    """Two recipes that differ in anything are two recipes."""
    made = corpus.build(tmp_path / "shards", 1000, source)

    assert made != replace(made, recipe={**made.recipe, "python": "another"})
