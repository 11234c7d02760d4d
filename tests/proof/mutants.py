"""All mutants, and how many seeds find each: `python -m tests.proof.mutants 60`."""

from __future__ import annotations

import sys

from tests.proof.broken import blocks, late_writers, readers, slots_and_grants, waits, wake_ups

MUTANTS = (
    *slots_and_grants.MUTANTS,
    *wake_ups.MUTANTS,
    *waits.MUTANTS,
    *readers.MUTANTS,
    *blocks.MUTANTS,
    *late_writers.MUTANTS,
)


def main(seeds: int) -> None:
    from tests.proof.worlds import kills

    for each in MUTANTS:
        found = kills(each, range(seeds))
        sys.stdout.write(f"{found:4} of {seeds}  {each!r}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
