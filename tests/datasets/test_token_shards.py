"""Windows of token shards, and every way in which shards can be wrong."""

from __future__ import annotations

import gzip
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import BatchStream, Loader
from headrace.datasets import Concat, Subset, TokenShards
from headrace.datasets.windows import widen, widen_as_signed
from headrace.errors import (
    ConfigError,
    FormatError,
    IndexOutOfRangeError,
    RowErrors,
    SourceChangedError,
)
from headrace.testing.dataset_reads import delivered_rows, raised, read_rows

DTYPES = ["|u1", "<u2", "<u4", "<i4", "<i8"]
MIB = 2**20


def save(path: Path, tokens: object, dtype: str = "<u2") -> Path:
    np.save(path, np.asarray(tokens, dtype))
    return path


def inputs(data: TokenShards) -> list[list[int]]:
    return [row["input"].tolist() for row in delivered_rows(data, range(len(data)))]  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_dtype_is_delivered_as_int64(dtype: str, tmp_path: Path) -> None:
    """The largest id of each survives (S0-14, S0-21)."""
    largest = int(np.iinfo(dtype).max)
    data = TokenShards(save(tmp_path / "a.npy", [largest, 1, 2, largest, 4], dtype), 4)

    (row,) = delivered_rows(data, [0])

    assert data.layout[0].dtype == np.dtype(dtype)
    assert row["input"].tolist() == [largest, 1, 2, largest]
    assert row["target"].tolist() == [1, 2, largest, 4]
    assert row["input"].dtype == row["target"].dtype == torch.int64


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_dtype_is_widened_alike_on_every_device(dtype: str) -> None:
    """The way of devices without uint16 and uint32 gives the same numbers."""
    limits = np.iinfo(dtype)
    tokens = torch.from_numpy(np.array([[limits.min, 1, limits.max]], dtype))
    here, there = torch.empty(1, 3, dtype=torch.int64), torch.empty(1, 3, dtype=torch.int64)

    widen(tokens, here)
    if dtype in ("<u2", "<u4"):
        widen_as_signed(tokens, there)
        assert there.tolist() == here.tolist()

    assert here.tolist() == [[limits.min, 1, limits.max]]


@settings(max_examples=60)
@given(data=st.data())
def test_batches_are_slices_of_the_shards(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Any shards, any windows in any order: equal to slices cut by hand (S0-15, S0-17)."""
    folder = tmp_path_factory.mktemp("shards")
    dtype = data.draw(st.sampled_from(DTYPES))
    lengths = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=5))
    seq_len = data.draw(st.integers(1, 6))
    version = data.draw(st.sampled_from([(1, 0), (2, 0), (3, 0)]))
    rng = np.random.default_rng(0)
    shards = [rng.integers(0, 128, n).astype(dtype) for n in lengths]
    for number, shard in enumerate(shards):
        with open(folder / f"{number}.npy", "wb") as file:
            np.lib.format.write_array(file, shard, version)
    cut = [
        shard[start : start + seq_len + 1].tolist()
        for shard in shards
        for start in range(0, len(shard) - seq_len, seq_len)
    ]
    if not cut:
        with pytest.raises(FormatError, match="full window"):
            TokenShards(folder, seq_len)
        return
    dataset = TokenShards(folder, seq_len)
    indices = data.draw(st.lists(st.integers(0, len(cut) - 1)))

    rows = read_rows(dataset, indices)

    assert len(dataset) == len(cut)
    assert dataset.total_tokens == sum(lengths)
    assert [row["tokens"].tolist() for row in rows] == [cut[index] for index in indices]


def test_windows_never_cross_and_tails_are_dropped(tmp_path: Path) -> None:
    """Two shards with tails (S0-17); tails count as tokens (S0-20)."""
    save(tmp_path / "a.npy", range(8))
    save(tmp_path / "b.npy", range(100, 106))

    data = TokenShards(tmp_path, 3)

    assert inputs(data) == [[0, 1, 2], [3, 4, 5], [100, 101, 102]]
    assert (len(data), data.total_tokens) == (3, 14)


def test_a_folder_is_read_by_the_bytes_of_its_names(tmp_path: Path) -> None:
    """10 before 9; other files, folders and hidden files are left out (S0-18)."""
    for number, name in enumerate(["10.npy", "9.npy", "1.npy", "Z.npy", "é.npy", ".x.npy"]):
        save(tmp_path / name, [number, number])
    (tmp_path / "notes.txt").write_text("no shard")
    (tmp_path / "sub.npy").mkdir()

    assert [shard.name for shard in TokenShards(tmp_path, 1).shards] == [
        "1.npy",
        "10.npy",
        "9.npy",
        "Z.npy",
        "é.npy",
    ]


def test_a_list_keeps_its_order_and_a_pattern_is_sorted(tmp_path: Path) -> None:
    """Files, lists, patterns and file URLs name the same shards (S0-18)."""
    (tmp_path / "x").mkdir()
    b, a = save(tmp_path / "x" / "b.npy", [1, 1]), save(tmp_path / "a.npy", [2, 2])

    def names(paths: object) -> list[str]:
        return [shard.name for shard in TokenShards(paths, 1).shards]  # type: ignore[arg-type]

    assert names([b, a]) == ["x/b.npy", "a.npy"]
    assert names(str(tmp_path / "**" / "*.npy")) == ["a.npy", "x/b.npy"]
    assert names(f"file://{a}") == ["a.npy"]
    assert names(os.path.relpath(a)) == ["a.npy"]


def test_a_bracket_in_a_name_is_no_pattern_where_the_file_exists(tmp_path: Path) -> None:
    """A file that exists is meant as it is."""
    assert len(TokenShards(str(save(tmp_path / "a[1].npy", [1, 2])), 1)) == 1


def test_raw_dumps_need_a_dtype_and_a_prefix_is_one(tmp_path: Path) -> None:
    """A cut at a whole token has the same first windows (S0-19)."""
    whole, prefix = tmp_path / "whole.bin", tmp_path / "prefix.npy"
    whole.write_bytes(np.arange(20, dtype="<u4").tobytes())
    prefix.write_bytes(whole.read_bytes()[: 4 * 9])

    first = inputs(TokenShards.raw(prefix, "<u4", 4))

    assert first == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert first == inputs(TokenShards.raw(whole, np.uint32, 4))[:2]
    assert TokenShards.raw([whole], np.dtype("u4"), 4).total_tokens == 20


WRONG: list[tuple[str, Callable[[Path], object], type[Exception], str]] = [
    ("seq_len 0", lambda p: TokenShards(save(p / "a.npy", [1, 2]), 0), ConfigError, "seq_len"),
    ("no paths", lambda p: TokenShards([], 4), ConfigError, "at least one shard"),
    ("empty folder", lambda p: TokenShards(p, 4), ConfigError, r"holds \.npy files"),
    ("empty pattern", lambda p: TokenShards(f"{p}/*.npy", 4), ConfigError, "fits some files"),
    ("no file", lambda p: TokenShards(p / "b.npy", 4), FileNotFoundError, "'b.npy' is not in"),
    ("raw folder", lambda p: TokenShards.raw(p, "u2", 4), ConfigError, r"dir/\*\.bin"),
    ("raw dtype", lambda p: TokenShards.raw(p / "a", "<f4", 4), ConfigError, "dtype: wanted one"),
    ("raw no dtype", lambda p: TokenShards.raw(p / "a", "wide", 4), ConfigError, "got 'wide'"),
    ("raw big-endian", lambda p: TokenShards.raw(p / "a", ">u2", 4), ConfigError, "'>u2'"),
    (
        "remote",
        lambda p: TokenShards("s3://key:secret@bucket/*.npy?token=x", 4),
        ConfigError,
        r"'s3://bucket/\*\.npy'\. Remote buckets are not in this version",
    ),
    (
        "vocab_size 0",
        lambda p: TokenShards(save(p / "a.npy", range(9)), 4, vocab_size=0),
        ConfigError,
        "vocab_size: wanted an int >= 1",
    ),
    ("seq_len text", lambda p: TokenShards(save(p / "a.npy", [1, 2]), "8"), ConfigError, "seq_len"),  # type: ignore[arg-type]
    (
        "vocab_size text",
        lambda p: TokenShards(save(p / "a.npy", range(9)), 4, vocab_size="a"),  # type: ignore[arg-type]
        ConfigError,
        "vocab_size: wanted an int >= 1, got 'a'",
    ),
    ("number", lambda p: TokenShards(5, 4), ConfigError, "paths: wanted a path.*got 5"),  # type: ignore[arg-type]
    ("numbers", lambda p: TokenShards([5], 4), ConfigError, "paths: wanted a path.*got 5"),  # type: ignore[list-item]
    ("bytes", lambda p: TokenShards(b"a", 4), ConfigError, "paths: wanted a path.*got b'a'"),
    (
        "only dumps",
        lambda p: [(p / "a.bin").touch(), TokenShards(p, 4)],
        ConfigError,
        r"It holds a\.bin\. Headerless dumps open by TokenShards\.raw",
    ),
]


@pytest.mark.parametrize(
    ("make", "kind", "message"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG]
)
def test_arguments_that_cannot_work_are_refused(
    make: Callable[[Path], object], kind: type[Exception], message: str, tmp_path: Path
) -> None:
    """Each error names the argument or file and the cure (U-35)."""
    with pytest.raises(kind, match=message):
        make(tmp_path)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(9, ">u2"), r"dtype >u2"),
        (np.zeros(9, ">i8"), r"dtype >i8"),
        (np.zeros(9, "<f4"), r"dtype <f4"),
        (np.zeros(9, "<i2"), r"dtype <i2"),
        (np.zeros(9, "<u8"), r"dtype <u8"),
        (np.zeros((3, 3), "<u2"), r"1-D array of token ids, found shape \(3, 3\)"),
        (np.zeros((3, 3), "<u2", order="F"), r"shape \(3, 3\) in Fortran order"),
        (np.array(3, "<u2"), r"shape \(\)"),
        (np.zeros(4, "<u2"), r"full window of 4 \+ 1 tokens, found at most 4 tokens \(in a\.npy\)"),
        (np.zeros(0, "<u2"), r"found at most 0 tokens"),
    ],
)
def test_arrays_that_are_no_shard_are_refused(
    array: np.ndarray, message: str, tmp_path: Path
) -> None:
    """Big-endian by name of its dtype (B08); float, 2-D, Fortran, too short (S0-14, U-35)."""
    np.save(tmp_path / "a.npy", array)

    with pytest.raises(FormatError, match=message) as caught:
        TokenShards(tmp_path / "a.npy", 4)

    assert caught.value.name.startswith(str(tmp_path))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """Headerless, truncated, of an unknown version, of odd size (U-35, B09)."""
    whole = save(tmp_path / "whole.npy", range(40)).read_bytes()
    bad = tmp_path / "bad.npy"
    cases = [
        (np.arange(40, dtype="<u2").tobytes(), "first bytes 00 00 01 00 02 00.*raw"),
        (whole[:-1], f"wanted {len(whole)} bytes by its header, found {len(whole) - 1}.*truncated"),
        (whole[:6] + b"\x09\0" + whole[8:], r"version 9\.0"),
        (b"", "empty file"),
        (b"PK\3\4" + whole, r"archive \(\.npz\): np\.save each"),
        (gzip.compress(whole), "It is compressed: unpack it"),
    ]

    for content, message in cases:
        bad.write_bytes(content)
        with pytest.raises(FormatError, match=f"{re.escape(str(bad))}: .*{message}"):
            TokenShards(bad, 4)
    bad.write_bytes(b"12345")
    with pytest.raises(FormatError, match=r"a multiple of 2 bytes \(<u2\), found 5 bytes"):
        TokenShards.raw(bad, "<u2", 1)


def test_a_npy_file_is_no_dump(tmp_path: Path) -> None:
    """Its header would come as tokens."""
    path = save(tmp_path / "a.npy", range(40))

    with pytest.raises(FormatError, match=r"a\.npy: .*without a header.*by TokenShards\(path"):
        TokenShards.raw(path, "<u2", 4)


def test_shards_of_two_dtypes_are_refused_naming_both(tmp_path: Path) -> None:
    """One of them would be read wrongly."""
    save(tmp_path / "a.npy", range(9))
    save(tmp_path / "b.npy", range(9), "<i4")

    with pytest.raises(FormatError, match=r"b\.npy: wanted dtype <u2 as in .*a\.npy, found.*<i4"):
        TokenShards(tmp_path, 4)


def test_a_version_2_file_has_the_samples_of_a_version_1_file(tmp_path: Path) -> None:
    """The four-byte header length moves the data, not the values (B09)."""
    for version in (1, 2, 3):
        with open(tmp_path / f"{version}.npy", "wb") as file:
            np.lib.format.write_array(file, np.arange(9, dtype="<u2"), (version, 0))

    found = [inputs(TokenShards(tmp_path / f"{version}.npy", 4)) for version in (1, 2, 3)]

    assert found == [[[0, 1, 2, 3], [4, 5, 6, 7]]] * 3


def test_the_wrong_width_is_found_by_the_vocabulary(tmp_path: Path) -> None:
    """The error names file, position and value; the other rows are filled (B10)."""
    path = tmp_path / "tokens.bin"
    path.write_bytes(np.array([1, 2, 3, 70000, 5, 6, 7, 149999], "<u4").tobytes())

    right = TokenShards.raw(path, "<u4", 3, vocab_size=150_000)
    assert inputs(right) == [[1, 2, 3], [70000, 5, 6]]

    small = TokenShards.raw(path, "<u4", 3, vocab_size=70_000)
    error = raised(RowErrors, lambda: read_rows(small, [0, 1]))
    assert sorted(error.errors) == [0, 1]
    assert f"{path}: wanted token ids in [0, 70000) (vocab_size), found 70000 at token 3." in str(
        error.errors[0]
    )

    narrow = TokenShards.raw(path, "<u2", 15, vocab_size=5000)
    error = raised(RowErrors, lambda: read_rows(narrow, [0]))
    assert "found 18927 at token 14. Is the file really uint16" in str(error.errors[0])


def test_a_negative_token_is_no_token(tmp_path: Path) -> None:
    """Signed ids below 0 lie outside any vocabulary (B10)."""
    data = TokenShards(save(tmp_path / "a.npy", [0, 1, -1], "<i4"), 2, vocab_size=2**40)

    error = raised(RowErrors, lambda: read_rows(data, [0]))

    assert "found -1 at token 2" in str(error.errors[0])


def test_tokens_past_4_gib_are_read(tmp_path: Path) -> None:
    """A sparse dump of 4 GiB and 4 KiB costs no RAM at open (B11, S0-16)."""
    path = tmp_path / "huge.bin"
    with open(path, "wb") as file:
        file.truncate(4_294_971_392)
        file.seek(4_294_967_296)
        file.write(np.array([7, 8, 9], "<u2").tobytes())
    before = psutil.Process().memory_info().rss

    data = TokenShards.raw(path, "<u2", 2)
    (row,) = read_rows(data, [2**30])

    assert row["tokens"].tolist() == [7, 8, 9]
    assert len(data) == (4_294_971_392 // 2 - 1) // 2
    assert str(data.locate(2**30)) == ("huge.bin, bytes [4294967296, 4294967302), token 2147483648")
    assert psutil.Process().memory_info().rss - before < 16 * MIB


def test_indices_of_32_bits_reach_past_4_gib(tmp_path: Path) -> None:
    """Byte offsets are computed in 64 bits whatever the caller's indices are (B11)."""
    path = tmp_path / "huge.bin"
    with open(path, "wb") as file:
        file.truncate(4_294_971_392)
        file.seek(4_294_967_296)
        file.write(np.array([7, 8, 9], "<u2").tobytes())
    data = TokenShards.raw(path, "<u2", 2)

    (sample,) = data.subset(np.array([2**30], np.int32)).map(dict).__getitems__([0])

    assert sample["input"].tolist() == [7, 8]


def test_an_index_outside_never_reaches_the_maps(tmp_path: Path) -> None:
    """The view that covers all maps has holes, so indices are checked first (S4-03)."""
    save(tmp_path / "a.npy", range(9))
    data = TokenShards(tmp_path, 4)

    for index in (2, -1, 10**15):
        with pytest.raises(IndexOutOfRangeError, match=f"index {index} is outside"):
            read_rows(data, [0, index])
        with pytest.raises(IndexError):
            data.locate(index)


def test_names_may_be_any_bytes(tmp_path: Path) -> None:
    """Files of other systems may have names that are no UTF-8."""
    save(tmp_path / os.fsdecode(b"\xff.npy"), range(9))

    with Loader(TokenShards(tmp_path, 4), batch_size=2, shuffle=False) as loader:
        assert loader.batch_at(0)["input"].tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_the_fingerprint_does_not_depend_on_where_the_files_are(tmp_path: Path) -> None:
    """It holds kind, counts and a digest of relative names and sizes (design 2.6)."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        save(tmp_path / folder / "a.npy", range(9))
        save(tmp_path / folder / "b.npy", range(9))
    one, two = TokenShards(tmp_path / "one", 4), TokenShards(tmp_path / "two", 4)

    assert one.fingerprint() == two.fingerprint()
    assert {k: v for k, v in one.fingerprint().items() if k != "names_and_sizes"} == {
        "kind": "TokenShards",
        "samples": 4,
        "seq_len": 4,
        "dtype": "<u2",
        "columns": ["input", "target"],
        "shards": 2,
        "bytes": 2 * (128 + 18),
    }
    os.rename(tmp_path / "two" / "b.npy", tmp_path / "two" / "c.npy")
    assert TokenShards(tmp_path / "two", 4).fingerprint() != one.fingerprint()
    assert TokenShards(tmp_path / "one", 3).fingerprint() != one.fingerprint()


def test_only_wanted_columns_are_delivered(tmp_path: Path) -> None:
    """The stored row stays whole, since both columns come out of it."""
    data = TokenShards(save(tmp_path / "a.npy", range(9)), 4)

    target = data.select("target")

    assert [column.name for column in target.delivered] == ["target"]
    assert target.layout == data.layout
    assert [list(row) for row in delivered_rows(target, [0])] == [["target"]]
    with pytest.raises(ConfigError, match=r"distinct names out of input, target"):
        data.select("labels")


def test_a_shard_that_was_rewritten_is_noticed(tmp_path: Path) -> None:
    """`check` compares mapped shards with what they were."""
    path = save(tmp_path / "a.npy", range(9))
    data = TokenShards(path, 4)
    read_rows(data, [0])
    data.check()

    save(tmp_path / "new.npy", range(20))
    os.replace(tmp_path / "new.npy", path)

    with pytest.raises(OSError, match="changed during the run"):
        data.check()


def test_a_composition_checks_its_parts(tmp_path: Path) -> None:
    """However deep the shards are."""
    path = save(tmp_path / "a.npy", range(9))
    data = TokenShards(path, 4)
    composed = Concat(Subset(data, [1]), data).map(dict)
    composed.check()
    read_rows(data, [0])

    path.unlink()

    with pytest.raises(SourceChangedError, match="changed during the run"):
        composed.check()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("begin", ["epoch", "plain", "stream"])
def test_a_shard_that_was_cut_short_is_an_error_of_the_next_run(
    begin: str, workers: int, tmp_path: Path
) -> None:
    """Reading its map would end the process; steps kept from the run before are no way round."""
    path = save(tmp_path / "a.npy", range(41))
    runs: dict[str, Callable[[Loader], BatchStream]] = {
        "epoch": lambda loader: loader.epoch(1),
        "plain": iter,  # type: ignore[dict-item]
        "stream": lambda loader: loader.stream(0, 2),
    }

    with Loader(TokenShards(path, 4), 5, workers=workers, epochs=3) as loader:
        assert len(list(loader)) == 2
        os.truncate(path, 150)

        with pytest.raises(SourceChangedError, match=r"a\.npy .*changed during the run"):
            next(runs[begin](loader))


def test_a_pickle_holds_no_map(tmp_path: Path) -> None:
    """A copy in another process maps the files itself (B25)."""
    data = TokenShards(save(tmp_path / "a.npy", np.arange(50_000) % 1000), 4)
    read_rows(data, [0])

    pickled = pickle.dumps(data)

    assert len(pickled) < 2000
    assert read_rows(pickle.loads(pickled), [3])[0]["tokens"].tolist() == [12, 13, 14, 15, 16]
