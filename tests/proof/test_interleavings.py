"""Every interleaving that a seed can make keeps the rules, and every broken rule is found."""

from __future__ import annotations

import pytest

from tests.proof.mutant import Mutant
from tests.proof.mutants import MUTANTS
from tests.proof.worlds import WORLDS, kills, play_all

QUICK_SEEDS = {"ring": 500, "blocks": 300, "loader": 200}
FULL_SEEDS = {"ring": 5_000, "blocks": 2_000, "loader": 1_000}
# The rarest finds come once in a hundred seeds, and any change of the code shuffles which.
MOST_SEEDS = 2_000


@pytest.mark.timeout(900)
@pytest.mark.parametrize("world", WORLDS)
def test_every_interleaving_keeps_the_rules(world: str, full: bool) -> None:
    """Order, bounds, bytes, progress, leases, late writers, the end (S1-08, S1-09, S1-43)."""
    seeds = (FULL_SEEDS if full else QUICK_SEEDS)[world]

    play_all(world, range(seeds))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("world", WORLDS)
def test_a_seed_is_one_interleaving(world: str, seed: int) -> None:
    """A run that failed fails again: nothing but the seed decides who goes on."""
    first, again = WORLDS[world](seed), WORLDS[world](seed)

    assert first.turns == again.turns > 0
    assert first.rng.random() == again.rng.random()


@pytest.mark.parametrize("mutant", MUTANTS, ids=repr)
def test_a_broken_rule_is_found(mutant: Mutant) -> None:
    """Breaking one rule makes a run fail; the search ends at the first that does."""
    found = kills(mutant, range(MOST_SEEDS), enough=1)

    assert found == 1
