"""Windows numbered through shards, as arithmetic."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.datasets.shards import Shard, ShardTable, starts_of


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), st.integers(1, 7))
def test_windows_are_those_that_a_loop_cuts(lengths: list[int], seq_len: int) -> None:
    """Every full window of every shard, in order, and no other (S0-15, S0-17)."""
    table = ShardTable([Shard(str(i), n, 0, n) for i, n in enumerate(lengths)], seq_len)

    cut = [
        (str(shard), position)
        for shard, tokens in enumerate(lengths)
        for position in range(0, tokens, seq_len)
        if position + seq_len + 1 <= tokens
    ]

    places = [table.place(index) for index in range(len(table))]
    assert [(shard.name, position) for shard, position in places] == cut
    assert table.total_tokens == sum(lengths)


def test_an_exact_fit_needs_one_token_more() -> None:
    """k * seq_len + 1 tokens hold k windows, k * seq_len hold k - 1 (S0-15)."""
    assert Shard("a", 4 * 10 + 1, 0, 0).windows(10) == 4
    assert Shard("a", 4 * 10, 0, 0).windows(10) == 3
    assert Shard("a", 0, 0, 0).windows(10) == 0


def test_starts_do_not_wrap_where_lengths_are_32_bits() -> None:
    """Sums of int32 lengths pass 2^31 and 2^32 (B11)."""
    lengths = np.array([2147483548, 123, 2147483548], np.int32)

    assert starts_of(lengths).tolist() == [0, 2147483548, 2147483671, 4294967219]
    assert (starts_of(lengths[:2]) * 4).tolist()[1] == 8589934192


def test_windows_of_huge_shards_are_found() -> None:
    """Ten thousand shards of 10^12 tokens need no table of windows (B11)."""
    table = ShardTable([Shard(str(i), 10**12 + 1, 0, 0) for i in range(10_000)], 1000)

    shard, position = table.place(10**13 - 1)

    assert len(table) == 10**13
    assert (shard.name, position) == ("9999", 10**12 - 1000)
