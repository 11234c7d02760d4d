"""The keyed permutation: golden values, one by one and in bulk, and what makes it a shuffle."""

from __future__ import annotations

import hashlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.samplers.permutation import KeyedPermutation, keyed_permutation, permute_rows
from tests.order.vectors import cases, word
from tests.vectors.make_own import placed

keys = st.integers(0, 2**64 - 1)
# Around the powers of two, where the domain grows, and the end of what tables are made for.
lengths = st.one_of(
    st.integers(1, 5000),
    st.integers(1, 2**63),
    st.builds(
        lambda bits, off: min(max(2**bits + off, 1), 2**63),
        st.integers(0, 63),
        st.integers(-2, 2),
    ),
)


@pytest.mark.parametrize("case", cases("permutation"))
def test_positions_go_where_the_vectors_say(case: dict[str, Any]) -> None:
    """Golden values, alone, in bulk and by row (S1-28, S1-29)."""
    n, key = word(case["n"]), word(case["key"])
    values = [word(value) for value in case["values"]]
    positions = [word(p) for p in case.get("positions", range(len(values)))]
    permutation = KeyedPermutation(n, key)

    assert [permutation(position) for position in positions] == values
    assert permutation.take(positions).tolist() == values
    assert permute_rows(positions, max(n, 1), key).tolist() == values
    if "sha256_u64le" in case:
        whole = permutation.take(np.arange(n)).astype("<u8").tobytes()
        assert hashlib.sha256(whole).hexdigest() == case["sha256_u64le"]


@given(n=lengths, key=keys, data=st.data())
def test_bulk_and_single_agree_with_plain_integers(n: int, key: int, data: st.DataObject) -> None:
    """Any n up to 2^63, any key: four ways to ask, one answer, and a way back (S1-28)."""
    positions = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=40))
    permutation = KeyedPermutation(n, key)
    expected = [placed(position, n, key) for position in positions]

    assert [permutation(position) for position in positions] == expected
    assert permutation.take(np.array(positions)).tolist() == expected
    assert permute_rows(positions, n, key).tolist() == expected
    assert [permutation.inverse(value) for value in expected] == positions


@given(n=st.integers(0, 5000), key=keys)
def test_every_position_is_hit_once(n: int, key: int) -> None:
    """A permutation of `[0, n)` (S1-26)."""
    values = KeyedPermutation(n, key).take(np.arange(n))

    assert sorted(values.tolist()) == list(range(n))


@pytest.mark.parametrize("n", [2_000_000, 2**28, 2**28 + 1, 2**49 + 1, 10**12, 2**62 + 3, 2**63])
def test_large_requests_are_cut_without_a_seam(n: int) -> None:
    """Requests of many thousand positions give what the positions give alone, in their shape."""
    positions = (np.arange(20_000, dtype=np.int64) * (n // 20_011)).reshape(200, 100)
    permutation = KeyedPermutation(n, 77)

    values = permutation.take(positions)

    assert values.shape == (200, 100)
    assert len(np.unique(values)) == 20_000
    sampled = range(0, 20_000, 401)
    assert values.reshape(-1)[::401].tolist() == [
        placed(int(positions.reshape(-1)[i]), n, 77) for i in sampled
    ]


@given(data=st.data())
def test_rows_have_lengths_and_keys_of_their_own(data: st.DataObject) -> None:
    """Each row is permuted in its own range under its own key."""
    n = data.draw(st.lists(lengths, min_size=1, max_size=12))
    position = [data.draw(st.integers(0, length - 1)) for length in n]
    key = [data.draw(keys) for _ in n]

    got = permute_rows(position, n, key).tolist()

    assert got == [placed(p, m, k) for p, m, k in zip(position, n, key, strict=True)]


@pytest.mark.parametrize(("n", "position"), [(5, 5), (5, -1), (0, 1), (1, 1), (2**63, 2**63)])
def test_a_position_outside_is_an_error(n: int, position: int) -> None:
    """Walking from outside could hit a value twice, so it is refused."""
    permutation = KeyedPermutation(n, 1)

    with pytest.raises(ValueError, match="position: wanted"):
        permutation(position)
    with pytest.raises(ValueError, match="position: wanted"):
        permutation.inverse(position)
    if position < 2**63:
        with pytest.raises(ValueError, match="position: wanted"):
            permutation.take([0, position])


def test_a_range_longer_than_indices_is_an_error() -> None:
    """2^63 is the longest."""
    with pytest.raises(ValueError, match="n: wanted"):
        KeyedPermutation(2**63 + 1, 1)


def test_threads_share_a_permutation() -> None:
    """Threads that make its tables at once all get its values."""
    positions = np.arange(3000)
    expected = KeyedPermutation(3000, 9).take(positions).tolist()
    shared = keyed_permutation(3000, 9)

    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: shared.take(positions).tolist(), range(16)))

    assert taken == [expected] * 16


def test_neighbours_are_spread() -> None:
    """Over many keys a position falls into each tenth of the range about equally often."""
    tenths = Counter(KeyedPermutation(1000, key)(3) // 100 for key in range(2000))

    # Four standard deviations of a tenth of 2,000 draws are 54.
    assert all(abs(tenths[tenth] - 200) < 54 for tenth in range(10))
