"""The benchmarks compare like with like, and say how sure they are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import generate  # noqa: E402
import lines  # noqa: E402
import report  # noqa: E402
from check import WrongDeliveryError, check_epochs, check_first  # noqa: E402
from intervals import interval, ratio  # noqa: E402
from peers import PEERS  # noqa: E402
from peers.peer import Peer  # noqa: E402
from peers.strong import Plain  # noqa: E402
from results import Results  # noqa: E402
from run import parse, plan  # noqa: E402
from targets import judge  # noqa: E402
from workload import Columns, Workload  # noqa: E402
from workloads import WORKLOADS, open_workload  # noqa: E402

TINY = Fraction(1, 2048)

# Their libraries come with headrace, so they are there wherever the tests run.
ALWAYS = ["headrace", "headrace-async", "headrace-0", "torch-0", "torch-index", "torch-2"]
ALWAYS += ["strong", "strong-recycled", "strong-ahead", "strong-ahead-2", "limit-1", "limit-2"]


@pytest.fixture(params=["T", "S"])
def workload(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workload]:
    scale = TINY if request.param == "T" else Fraction(1, 512)
    opened = open_workload(generate.make(request.param, scale, tmp_path))
    yield opened
    opened.close()


def bench(*arguments: object, script: str = "run.py") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "benchmarks" / script, *arguments]
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


@pytest.mark.parametrize(("workloads", "scale"), [("T,R,S,V", ()), ("J", ("--scale", "1/64"))])
def test_every_loader_delivers_every_row_once_and_right(
    workloads: str, scale: tuple[str, ...]
) -> None:
    """Whoever is measured does the whole work: contents, coverage, shuffle (S4-44)."""
    done = bench("--check", "--workloads", workloads, *scale)

    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [f"{name} {peer}: right" for name in workloads.split(",") for peer in ALWAYS] == [
        line for line in lines if line.partition(" ")[2].removesuffix(": right") in ALWAYS
    ]


def test_a_peer_runs_the_workloads_that_it_is_set_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One with an environment of its own runs where it is named, and nowhere else."""
    monkeypatch.setattr(sys, "argv", ["run.py"])
    everything = parse()
    monkeypatch.setattr(sys, "argv", ["run.py", "--peers", "strong,datasets", "--rounds", "1"])

    cells = {(cell.workload, cell.peer) for cell in plan(parse())}

    assert everything.workloads == list("TRJSV") == list(WORKLOADS)
    assert not any(PEERS[peer].environment for peer in everything.peers)
    assert cells == {(name, "strong") for name in "TRJSV"} | {("J", "datasets"), ("S", "datasets")}


def test_a_run_measures_every_metric_and_writes_it_down(tmp_path: Path) -> None:
    """A run of all metrics keeps each of them, and judges the targets it has figures for."""
    output = tmp_path / "run.json"
    arguments = ["--workloads", "T", "--peers", "headrace,strong", "--rounds", 1]
    places = ["--data", tmp_path / "data", "--output", output]

    done = bench(*arguments, "--seconds", 0.05, "--scale", "1/512", "--cores", 1, *places)

    assert done.returncode == 0, done.stdout + done.stderr
    results = Results.load(output)
    ours, theirs = results.cells
    assert {"inflation", "wait_p99_ms", "epoch_gap_ms", "private_mib"} < theirs.values.keys()
    assert {"resume_ratio", "order_us_per_sample", "library_import_ms"} < ours.values.keys()
    assert {"private_over_declared_mib", "new_blocks_per_batch"} < ours.values.keys()
    assert str(tmp_path) not in results.facts["command"]
    assert "T: headrace epoch_gap_ms" in [verdict.what for verdict in judge(results)]


def test_line_images_are_measured_in_the_setting_of_the_text() -> None:
    """Sizes, batch, multiple, augmentation and depth, as the script's own constants (S1-50)."""
    data = lines.LineImages()
    heights = {data[index][0].shape[1] for index in range(len(data))}
    widths = [data[index][0].shape[2] for index in range(len(data))]

    with lines.loader_of(data, 0) as loader:
        batch = next(iter(loader))

        assert (len(data), heights, min(widths), max(widths)) == (2048, {32}, 64, 256)
        assert (batch.num_rows, loader.prefetch_depth) == (128, 8)
        assert batch["images"].shape == (128, 1, 32, 256)
        assert lines.WIDTH_MULTIPLE == 4
        assert lines.WORKERS == (0, 1, 4)


def test_line_images_are_checked_and_their_rates_marked_indicative() -> None:
    """Two rates for each number of workers, and no new memory on the caller's thread
    (S1-51, S1-52, S4-44)."""
    done = bench("--seconds", 0.02, script="lines.py")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("Indicative: 2 runs")
    rows = [line.split(" | ") for line in done.stdout.split("\n")[-5:-2]]
    assert [row[0] for row in rows] == ["| 0", "| 1", "| 4"]
    assert all(float(rate.replace(",", "")) > 0 for row in rows for rate in row[1].split(", "))
    assert rows[0][2] == "0.000"


def test_a_wrong_line_image_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check recomputes every pixel from the seed (S4-44)."""
    data = lines.LineImages(256)
    with lines.loader_of(data, 0) as loader:
        lines.check_epoch(data, loader)
    monkeypatch.setattr(lines, "AUGMENTATION_STREAM", 2)

    with (
        lines.loader_of(data, 0) as loader,
        pytest.raises(AssertionError, match="pixels of image"),
    ):
        lines.check_epoch(data, loader)


class Altered(Plain):
    """A right peer, to be spoiled."""

    def batches(self, epochs: int) -> Iterator[Columns]:
        return map(self.spoil, super().batches(epochs))

    def spoil(self, columns: Columns) -> Columns:
        return columns


class OneValueWrong(Altered):
    def spoil(self, columns: Columns) -> Columns:
        columns[-1][-1, -1] += 1
        return columns


class NotContiguous(Altered):
    def spoil(self, columns: Columns) -> Columns:
        return tuple(column.t().contiguous().t() for column in columns)


class OtherType(Altered):
    def spoil(self, columns: Columns) -> Columns:
        return tuple(column.double() for column in columns)


class ColumnMissing(Altered):
    def spoil(self, columns: Columns) -> Columns:
        return (*columns, columns[0])


class InOrder(Plain):
    def __init__(self, workload: Workload, seed: int) -> None:
        super().__init__(workload, seed)
        self.order.epoch = lambda epoch: np.arange(workload.rows)  # type: ignore[method-assign]


class SameOrder(Plain):
    def __init__(self, workload: Workload, seed: int) -> None:
        super().__init__(workload, seed)
        once = self.order.epoch(0)
        self.order.epoch = lambda epoch: once  # type: ignore[method-assign]


class RowsTwice(Plain):
    def __init__(self, workload: Workload, seed: int) -> None:
        super().__init__(workload, seed)
        twice = np.tile(np.random.default_rng(0).permutation(workload.rows)[::2], 2)
        self.order.epoch = lambda epoch: twice  # type: ignore[method-assign]


class EndsEarly(Plain):
    def batches(self, epochs: int) -> Iterator[Columns]:
        yield from super().batches(epochs - 1)


@pytest.mark.parametrize(
    ("spoiled", "fault"),
    [
        (OneValueWrong, "holds other values than the data"),
        (NotContiguous, "is not contiguous"),
        (OtherType, "is torch.float64"),
        (ColumnMissing, "columns, wanted"),
        (InOrder, "batches spread over"),
        (SameOrder, "the same order"),
        (RowsTwice, "does not hold each row once"),
        (EndsEarly, "batches"),
    ],
)
def test_a_peer_that_does_less_is_found_out(
    spoiled: type[Peer], fault: str, workload: Workload
) -> None:
    """Each way to do less work than asked is an error that says which."""
    peer = spoiled(workload, 1)  # type: ignore[call-arg]

    with pytest.raises(WrongDeliveryError, match=fault):
        check_epochs(workload, peer)


def test_the_check_of_first_batches_finds_a_wrong_value(workload: Workload) -> None:
    """A cell of a full-size run checks values too."""
    with pytest.raises(WrongDeliveryError, match="holds other values"):
        check_first(workload, OneValueWrong(workload, 1))

    check_first(workload, Plain(workload, 1))


def test_the_data_is_the_same_bytes_everywhere(tmp_path: Path) -> None:
    """Figures of two machines are of the same data."""
    made = {
        name: open_workload(generate.make(name, scale, tmp_path))
        for name, scale in {"T": TINY, "S": Fraction(1, 512), "V": TINY, "R": TINY}.items()
    }
    begins = {
        name: [column[0].flatten()[:4].tolist() for column in workload.expected(np.array([3]))]
        for name, workload in made.items()
    }
    for workload in made.values():
        workload.close()

    assert begins == {
        "T": [[3, 0, 39904, 50767], [0, 39904, 50767, 27679]],
        "S": [[3.0, 0.41495180130004883, 0.031042635440826416, 0.2755799889564514]],
        "V": [[3, 8915, 24068, 18855], [187], [True, True, True, True]],
        "R": [[56, 147, 217, 252], [3]],
    }


def test_a_picture_carries_its_number_through_resize_and_crop(tmp_path: Path) -> None:
    """What is decoded tells which file it came from, without a look at the file."""
    pictures = open_workload(generate.make("J", Fraction(1, 64), tmp_path))
    rows = np.array([63, 0, 5, 42])

    delivered = pictures.expected(rows)

    assert pictures.identify(delivered).tolist() == [63, 0, 5, 42]
    assert delivered[1].tolist() == [15, 0, 1, 10]
    assert delivered[0].shape == (4, 224, 224, 3)
    first = tmp_path / "J-1of64" / "class-00" / "000000.jpg"
    assert 95_000 < first.stat().st_size < 125_000


def test_whole_data_is_used_again_and_damaged_data_made_again(tmp_path: Path) -> None:
    """A second run finds the data; one changed byte is noticed."""
    folder = generate.make("S", TINY, tmp_path)
    file = folder / "rows.npy"
    first, made_at = file.read_bytes(), file.stat().st_mtime_ns

    generate.make("S", TINY, tmp_path)
    assert file.stat().st_mtime_ns == made_at

    file.write_bytes(first[:-1] + bytes([first[-1] ^ 1]))
    generate.make("S", TINY, tmp_path)
    assert file.read_bytes() == first


def test_a_ratio_pairs_the_rounds() -> None:
    """A slow round slows both peers and leaves their ratio alone."""
    ours = {0: 200.0, 1: 20.0, 2: 100.0, 5: 1.0}
    theirs = {0: 100.0, 1: 10.0, 2: 50.0, 7: 1.0}

    found = ratio(ours, theirs)

    assert (found.median, found.low, found.high, found.rounds) == (2.0, 2.0, 2.0, 3)


def test_an_interval_holds_the_median_and_widens_with_the_spread() -> None:
    """The interval is that of a median: one odd round of nine hardly moves it."""
    steady = interval([1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 1.0, 1.0, 9.0])
    shaky = interval([0.5, 1.5, 0.9, 1.0, 1.4, 0.6, 1.0, 2.0, 0.1])

    assert 0.95 <= steady.low <= steady.median == 1.0 <= steady.high <= 1.1
    assert shaky.high - shaky.low > 2 * (steady.high - steady.low)


@pytest.mark.parametrize(("rate", "is_met"), [(1.06, True), (1.04, False)])
def test_a_target_is_met_from_the_lower_end_of_the_interval(rate: float, is_met: bool) -> None:
    """No more than 0.05 under the target, at the lower end."""
    results = Results({})
    for number in range(9):
        results.add(number, "T", "strong", {"samples_per_s": 100.0})
        results.add(number, "T", "headrace-0", {"samples_per_s": 100.0 * rate})

    (verdict,) = judge(results)

    assert verdict.what == "T: headrace-0 over strong"
    assert verdict.is_met is is_met


def test_a_report_changes_only_what_is_between_the_marks() -> None:
    """The page around the tables stays as it was written."""
    page = "a\n<!-- main results -->\nold\n<!-- end of main results -->\nb\n"

    assert report.put(page, "main", "new") == (
        "a\n<!-- main results -->\nnew\n<!-- end of main results -->\nb\n"
    )
    with pytest.raises(SystemExit):
        report.put(page, "tuned", "new")
    assert report.put(report.PAGE.read_text(), "tuned", "x").count("<!-- ") == 8
