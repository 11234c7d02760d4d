"""What went wrong for users of other loaders when they resumed, tried on this one."""

from __future__ import annotations

import itertools
from typing import Any

from tests.state import loaders
from tests.state.processes import Taken, trained

TEN: dict[str, Any] = {"samples": 10, "batch": 2, "seed": 1}
TWENTY: dict[str, Any] = {"samples": 20, "batch": 2, "seed": 1}


def whole_run(arguments: dict[str, Any], epochs: int) -> Taken:
    with loaders.loader(**arguments) as made:
        return list(loaders.run(made, epochs))


def ids(taken: Taken) -> list[list[int]]:
    return [batch["ids"] for batch, _ in taken]


def test_b01_a_resume_in_the_second_epoch_keeps_its_order() -> None:
    """Stopped after the 2nd batch of the 2nd epoch, a new process gives the rest of the
    ids (B01)."""
    reference = whole_run(TEN, epochs=3)

    (before,) = trained({"loader": TEN, "epochs": 3, "take": 7})
    (after,) = trained({"loader": TEN, "epochs": 3, "state": before[-1][1]})

    assert len(before) == 7
    assert ids(before) + ids(after) == ids(reference)
    # The second and third epochs are no copies of the first: the test can tell them apart.
    assert ids(reference)[:5] != ids(reference)[5:10] != ids(reference)[10:]


def test_b02_the_offset_of_a_resume_holds_once() -> None:
    """Stopped after 3 batches, the resumed epoch has 2 and each later one all 5 (B02)."""
    reference = whole_run(TEN, epochs=3)

    (before,) = trained({"loader": TEN, "take": 3})
    with loaders.loader(**TEN) as made:
        made.load_state_dict(before[-1][1])
        epochs = [[loaders.ids(batch) for batch in made] for _ in range(3)]

    assert [len(epoch) for epoch in epochs] == [2, 5, 5]
    assert [sorted(itertools.chain(*epoch)) for epoch in epochs[1:]] == [list(range(10))] * 2
    assert epochs == [ids(reference)[3:5], ids(reference)[5:10], ids(reference)[10:]]


def test_b03_a_second_resume_goes_on_where_the_first_stopped() -> None:
    """Three processes, each with the state of the one before, give one epoch (B03)."""
    (first,) = trained({"loader": TWENTY, "epochs": 1, "take": 3})
    (second,) = trained({"loader": TWENTY, "epochs": 1, "state": first[-1][1], "take": 2})
    (third,) = trained({"loader": TWENTY, "epochs": 1, "state": second[-1][1]})

    assert ids(first) + ids(second) + ids(third) == ids(whole_run(TWENTY, epochs=1))
    assert second[-1][1]["next_step"] == 5
    assert second[-1][1]["step_in_epoch"] == 5


def test_b04_a_state_at_the_end_of_an_epoch_begins_the_next() -> None:
    """Saved with the 5th batch in hand, and saved after the loop: both go on with the first
    batch of epoch 1, in its own order, and the run has its planned number of batches (B04)."""
    reference = whole_run(TEN, epochs=3)
    with loaders.loader(**TEN) as made:
        in_hand = [made.state_dict() for _ in made.epoch(0)][-1]
        after_loop = made.state_dict()

    rests = trained(*({"loader": TEN, "state": state} for state in (in_hand, after_loop)))

    assert in_hand == after_loop
    assert (in_hand["epoch"], in_hand["step_in_epoch"]) == (1, 0)
    assert rests == [reference[5:], reference[5:]]
    assert [rests[0][0][0][key] for key in ("epoch", "step")] == [1, 5]


def test_b04_the_loop_over_a_loader_begins_the_next_epoch_too() -> None:
    """The torch habit, `for epoch in ...: for batch in loader`, meets no empty epoch (B04)."""
    reference = whole_run(TEN, epochs=3)
    with loaders.loader(**TEN) as made:
        state = [made.state_dict() for _ in made][-1]

    with loaders.loader(**TEN) as made:
        made.load_state_dict(state)
        epochs = [[loaders.ids(batch) for batch in made] for _ in range(state["epoch"], 3)]

    assert epochs == [ids(reference)[5:10], ids(reference)[10:]]


def test_b07_a_draw_belongs_to_its_view_wherever_it_is_made() -> None:
    """64 draws of an epoch differ, epochs differ, and threads or a resume change none (B07)."""
    drawn = [draws(workers=workers) for workers in (0, 1, 2, 8)]
    (taken,) = trained({"loader": {**DRAWING, "workers": 2}, "take": 12, "epochs": 2})
    (resumed,) = trained({"loader": {**DRAWING, "workers": 3}, "state": taken[-1][1], "epochs": 2})

    assert drawn[0] == drawn[1] == drawn[2] == drawn[3]
    assert len({draw for _, draw in drawn[0].items()}) == 128
    assert [*taken, *resumed] == whole_run({**DRAWING, "workers": 1}, epochs=2)


DRAWING: dict[str, Any] = {"data": "list", "samples": 64, "batch": 8, "draws": True}


def draws(workers: int) -> dict[tuple[int, int], int]:
    """Give the draw of each (epoch, id)."""
    with loaders.loader(**DRAWING, workers=workers) as made:
        return {
            (batch.epoch, sample): draw
            for epoch in made.epochs(2)
            for batch in epoch
            for sample, draw in zip(loaders.ids(batch), batch["draw"].tolist(), strict=True)
        }
