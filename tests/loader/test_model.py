"""The naive model is itself held to the golden vectors, so that it may judge the loader."""

from __future__ import annotations

from typing import Any

import pytest

from tests import model
from tests.order.vectors import cases, word


def order_of(case: dict[str, Any]) -> model.Order:
    seed, batch = word(case.get("seed", 0)), case["batch_size"]
    match case["kind"]:
        case "sequential":
            return model.sequential(case["n"], batch, case["drop_last"])
        case "shuffled":
            return model.shuffled(case["n"], batch, seed, case["drop_last"])
        case "mixing":
            return model.mixing(
                case["sources"], case["shares"], batch, case["steps_per_epoch"], seed
            )
        case _:
            pools = case["pool_batches"]
            return model.bucketed(case["lengths"], batch, pools, seed, case["drop_last"])


@pytest.mark.parametrize("name", ["samplers", "mixing", "bucketed"])
def test_the_model_gives_the_golden_orders(name: str) -> None:
    """Every small order of the vectors, step by step (S1-23..25, S1-27, S1-31, S1-34)."""
    compared = 0
    for case in cases(name):
        if case.get("n", 0) > 5000 or case.get("steps_per_epoch", 0) > 5000:
            continue
        run = model.Model(order_of(case))
        for batch in case.get("batches", []):
            samples = [sample for sample, _ in run.order(batch["epoch"])[batch["step"]]]
            assert samples == batch["indices"]
            compared += 1
        for plan in case.get("plans", []):
            batches = [[sample for sample, _ in step] for step in run.order(plan["epoch"])]
            assert batches == plan["batches"]
            compared += 1
        for at in case.get("global_steps", []):
            assert run.step(at["g"]).samples == at["indices"]
            compared += 1

    assert compared >= 16


@pytest.mark.parametrize("name", ["own_uniform", "own_blocks"])
def test_the_model_gives_the_orders_of_our_own(name: str) -> None:
    """Uniform and block orders, which the specification does not have."""
    for case in cases(name):
        n, seed, augment = case["num_samples"], case["seed"], case["augment"]
        if name == "own_uniform":
            order = model.uniform(n, max(1, n * augment), seed, False, augment)
        else:
            order = model.block_shuffled(
                n, n * augment, seed, False, case["block"], case["window"], augment
            )

        views = [list(pick) for step in order(case["epoch"]) for pick in step]

        assert views == case["views"]
