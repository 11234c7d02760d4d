"""What a batch looks like to a training loop."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from headrace.batch import Batch
from headrace.collate import default_collate
from headrace.errors import HeadraceError


def batch_of(columns: dict[str, Any], **facts: Any) -> Batch:
    """A batch of two rows at step 3, unless told otherwise."""
    known: dict[str, Any] = {"step": 3, "epoch": 1, "num_rows": 2, "indices": np.array([7, 4])}
    return Batch(tuple(columns), tuple(columns.values()), **(known | facts))


@pytest.fixture
def image() -> torch.Tensor:
    return torch.arange(12, dtype=torch.uint8).reshape(2, 2, 3)


@pytest.fixture
def label() -> torch.Tensor:
    return torch.tensor([5, 6])


@pytest.fixture
def batch(image: torch.Tensor, label: torch.Tensor) -> Batch:
    return batch_of({"image": image, "label": label, "path": ["a.png", "b.png"]})


def test_columns_are_reached_by_name_and_by_position(
    batch: Batch, image: torch.Tensor, label: torch.Tensor
) -> None:
    """Names and positions give the same columns (S0-23)."""
    assert batch["image"] is image
    assert batch[0] is image
    assert batch[np.int64(1)] is label
    assert batch[-1] == ["a.png", "b.png"]
    assert batch.names == ("image", "label", "path")
    assert len(batch) == 3
    assert batch.num_rows == 2


def test_a_batch_unpacks_into_its_columns(image: torch.Tensor, label: torch.Tensor) -> None:
    """`x, y = batch` gives columns, not names."""
    x, y = batch_of({"image": image, "label": label})

    assert x is image
    assert y is label


def test_a_batch_reads_like_a_mapping(batch: Batch, image: torch.Tensor) -> None:
    """has, in, get, keys, values, items and `**batch` work by name (S0-23)."""
    assert batch.has("image")
    assert not batch.has("0")
    assert "label" in batch
    assert "lable" not in batch
    assert batch.get("image") is image
    assert batch.get("mask") is None
    assert batch.get("mask", 1) == 1
    assert list(batch.keys()) == ["image", "label", "path"]
    assert list(batch.values()) == list(batch)
    assert [name for name, _ in batch.items()] == ["image", "label", "path"]
    assert dict(**batch)["image"] is image


def test_a_batch_is_not_registered_as_a_mapping() -> None:
    """Libraries that walk mappings by key do not take a batch for one."""
    assert not issubclass(Batch, Mapping)


def test_an_unknown_name_is_a_key_error_that_lists_the_names(batch: Batch) -> None:
    """The sentence can be read, and names what there is (S0-23)."""
    with pytest.raises(KeyError) as caught:
        batch["lable"]

    assert isinstance(caught.value, HeadraceError)
    assert str(caught.value) == "no column 'lable'; this batch has 'image', 'label', 'path'."
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("position", [3, -4])
def test_an_unknown_position_is_an_index_error(batch: Batch, position: int) -> None:
    """Positions are bounded on both sides."""
    with pytest.raises(IndexError, match=rf"index {position} is outside \[0, 3\)"):
        batch[position]


def test_the_facts_of_the_step_are_attributes(batch: Batch) -> None:
    """Step, epoch, indices, keys, weight and mask ride along (S4-19: weigh means by num_rows)."""
    assert (batch.step, batch.epoch, batch.weight) == (3, 1, 1.0)
    assert batch.indices.tolist() == [7, 4]
    assert batch.pick_keys is None
    assert batch.mask is None


def test_to_moves_tensors_and_mask_and_leaves_the_rest_on_the_host(label: torch.Tensor) -> None:
    """`to` gives another batch; lists stay, tensors and the mask go."""
    keys = object()
    mask = torch.tensor([True, False])
    batch = batch_of(
        {"label": label, "path": ["a", "b"]}, mask=mask, weight=0.5, pick_keys=keys, step=9
    )

    moved = batch.to("meta", non_blocking=True)

    assert moved["label"].device.type == "meta"
    assert moved["path"] == ["a", "b"]
    assert moved.mask is not None
    assert moved.mask.device.type == "meta"
    assert (moved.step, moved.weight, moved.pick_keys) == (9, 0.5, keys)
    assert batch["label"].device.type == "cpu"
    assert batch.mask is mask


def test_pin_gives_pinned_memory_where_an_accelerator_pins_and_the_batch_elsewhere(
    batch: Batch,
) -> None:
    """`batch.pin().to(device)` runs on every machine; on a CPU it does nothing (S4-25)."""
    pinned = batch.pin()

    if torch.cuda.is_available():
        assert pinned["label"].is_pinned()
        assert pinned["label"].data_ptr() != batch["label"].data_ptr()
    else:
        assert pinned is batch
    assert pinned["label"].tolist() == [5, 6]


def test_with_columns_puts_in_place_and_adds(batch: Batch, label: torch.Tensor) -> None:
    """A transform gives new columns without touching the batch it got."""
    made = batch.with_columns({"image": torch.zeros(2), "weight": torch.ones(2)})

    assert made.names == ("image", "label", "path", "weight")
    assert made["image"].tolist() == [0, 0]
    assert made["label"] is label
    assert (made.step, made.num_rows) == (3, 2)
    assert batch.names == ("image", "label", "path")
    assert batch["image"].shape == (2, 2, 3)


def test_rebuild_gives_the_nested_form_back() -> None:
    """Columns of nested samples come back as those samples nest."""
    samples = [{"x": (1, [2.0, "a"])}, {"x": (3, [4.0, "b"])}]
    columns = default_collate(samples, [7, 4])
    batch = batch_of(
        dict(zip(columns.names, columns.values, strict=True)), structure=columns.structure
    )

    nested = batch.rebuild()

    assert batch.names == ("x/0", "x/1/0", "x/1/1")
    assert list(nested) == ["x"]
    assert nested["x"][0].tolist() == [1, 3]
    assert nested["x"][1][0].tolist() == [2.0, 4.0]
    assert nested["x"][1][1] == ["a", "b"]


def test_rebuild_of_a_flat_batch_is_a_dict(batch: Batch, label: torch.Tensor) -> None:
    """Without a structure there is one level."""
    assert list(batch.rebuild()) == ["image", "label", "path"]
    assert batch.rebuild()["label"] is label


def test_the_repr_tells_names_dtypes_and_shapes(batch: Batch) -> None:
    """A repr is worth reading in a log."""
    assert repr(batch) == (
        "Batch(step 3, epoch 1, 2 rows; image: uint8 [2, 2, 3], label: int64 [2], path: list of 2)"
    )


def test_the_repr_of_many_columns_is_short() -> None:
    """A thousand columns do not fill the screen."""
    batch = batch_of({str(n): torch.zeros(2) for n in range(1000)})

    assert repr(batch).endswith("7: float32 [2], ... 992 more)")


def test_the_repr_shows_other_devices_and_ragged_tensors(label: torch.Tensor) -> None:
    """Devices other than the CPU are named; a nested tensor has rows and no shape."""
    assert "label: int64 [2] on meta" in repr(batch_of({"label": label}).to("meta"))
    nested = torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2)], layout=torch.jagged)
    assert "float32 nested, 2 rows" in repr(batch_of({"x": nested}))


def test_a_copy_shares_its_columns(batch: Batch, image: torch.Tensor) -> None:
    """copy.copy makes another batch of the same tensors."""
    copied = copy.copy(batch)

    assert copied is not batch
    assert copied["image"] is image
    assert copied.step == 3


def test_a_deep_copy_shares_nothing(batch: Batch) -> None:
    """copy.deepcopy may be edited without effect on the original."""
    copied = copy.deepcopy(batch)
    copied["label"].zero_()
    copied["path"].append("c")

    assert batch["label"].tolist() == [5, 6]
    assert batch["path"] == ["a.png", "b.png"]


def test_a_pickled_batch_carries_its_rows_and_not_the_block_under_them() -> None:
    """A view of a large block pickles as what it shows (pickled batches own their memory)."""
    block = torch.arange(1_000_000)
    mask = torch.ones(1_000_000, dtype=torch.bool)[:2]
    batch = batch_of({"x": block[10:12], "path": ["a", "b"]}, mask=mask, weight=0.25)

    data = pickle.dumps(batch)
    back = pickle.loads(data)

    assert len(data) < 4096
    assert back["x"].tolist() == [10, 11]
    assert back["x"].untyped_storage().nbytes() == 16
    assert back["path"] == ["a", "b"]
    assert back.mask.tolist() == [True, True]
    assert (back.step, back.epoch, back.num_rows, back.weight) == (3, 1, 2, 0.25)
    assert back.indices.tolist() == [7, 4]
    assert batch["x"].untyped_storage().nbytes() == 8_000_000


def test_a_tree_map_over_a_batch_gives_a_batch(image: torch.Tensor, label: torch.Tensor) -> None:
    """A batch is a torch pytree; its facts ride along."""
    batch = batch_of({"image": image, "label": label}, weight=0.5)

    doubled = pytree.tree_map(lambda column: column * 2, {"inputs": batch})["inputs"]

    assert isinstance(doubled, Batch)
    assert doubled["label"].tolist() == [10, 12]
    assert (doubled.step, doubled.weight, doubled.num_rows) == (3, 0.5, 2)
    assert doubled.indices.tolist() == [7, 4]


def test_batches_of_different_steps_map_together_and_of_different_names_do_not(
    label: torch.Tensor,
) -> None:
    """Two batches are trees of one form where their names agree."""
    one = batch_of({"label": label}, step=1)
    two = batch_of({"label": label}, step=2)
    other = batch_of({"target": label})

    summed = pytree.tree_map(torch.add, one, two)

    assert summed["label"].tolist() == [10, 12]
    assert pytree.tree_structure(one) == pytree.tree_structure(two)
    with pytest.raises(ValueError, match="context mismatch"):
        pytree.tree_map(torch.add, one, other)


def test_tree_paths_name_the_columns(label: torch.Tensor) -> None:
    """A path into a batch reads like indexing by name."""
    paths = pytree.tree_leaves_with_path(batch_of({"label": label}))

    assert [pytree.keystr(path) for path, _ in paths] == ["['label']"]


def test_a_dropped_batch_frees_its_columns_at_once_but_not_one_that_is_kept() -> None:
    """Memory returns by reference counts: no cycle, no call to release (S1-43)."""
    batch = batch_of({"x": torch.zeros(2), "y": torch.ones(2)})
    x, y = map(weakref.ref, batch)
    kept = batch["y"]

    gc.disable()
    try:
        del batch

        assert x() is None
        assert y() is kept
    finally:
        gc.enable()
