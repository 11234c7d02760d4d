"""What every test gets: a seed that can be replayed, poisoned blocks, and a check for leaks.

- `--seed N` (or HEADRACE_SEED=N) replays the random choices of a run; its header prints the seed.
- `--full` runs the tests marked `full` and tells the `full` fixture to give whole matrices.
- Each test must leave no thread, task, file descriptor or child process behind.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator

import hypothesis
import pytest

from tests import leaks

# Blocks given back to the pool are overwritten, so a batch that still looks at one shows it.
os.environ["HEADRACE_POISON"] = "1"

SEED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("headrace")
    group.addoption("--full", action="store_true", help="run every matrix whole")
    group.addoption("--seed", type=int, help="replay the random choices of a run")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed before hypothesis reads its own option; let interrupts reach children."""
    # A suite started in the background inherits that interrupts are ignored, and would pass that
    # on to the programs that it interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    seed = config.getoption("--seed")
    if seed is None:
        seed = int(os.environ.get("HEADRACE_SEED", random.SystemRandom().randrange(2**32)))
    config.stash[SEED] = seed
    config.option.hypothesis_seed = str(seed)
    # No database and no deadline: a run depends on its seed, not on the machine's past or pace.
    hypothesis.settings.register_profile(
        "headrace",
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("headrace")


def pytest_report_header(config: pytest.Config) -> str:
    whole = " --full" if config.getoption("--full") else ""
    return f"headrace: replay this run with --seed={config.stash[SEED]}{whole}"


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Name the seed again beside the failures, since `-q` hides the header."""
    terminalreporter.write_line(pytest_report_header(config))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what this run did not ask for or this machine cannot do; watch async tests."""
    if not config.getoption("--full"):
        whole = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=whole)
        items[:] = [item for item in items if item not in whole]
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu and not _has_accelerator():
        for item in on_gpu:
            item.add_marker(pytest.mark.skip(reason="this machine has no accelerator"))
    for item in items:
        if isinstance(item, pytest.Function):
            item.obj = leaks.tasks_watched(item.obj)


def _has_accelerator() -> bool:
    import torch

    return torch.cuda.is_available() or torch.backends.mps.is_available()


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this run, for tests that draw at random."""
    return request.config.stash[SEED]


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether matrices are to be run whole."""
    return bool(request.config.getoption("--full"))


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """Fail a test that leaves a thread, a descriptor or a child process."""
    before = leaks.Remains.now()

    yield

    left = leaks.left_since(before)
    if left:
        pytest.fail("the test left behind: " + "; ".join(left), pytrace=False)
