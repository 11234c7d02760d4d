"""Facts about the machine and the libraries, for the results; and what every cell runs under."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

import psutil
import torch
from peers import ENVIRONMENTS

PACKAGES = ["headrace", "torch", "numpy", "torchdata", "spdl", "grain", "pillow", "simplejpeg"]
# What lies in the environments of its own: distribution, and the environment.
PACKAGES_APART = {
    "litdata": "litdata",
    "mosaicml-streaming": "streaming",
    "webdataset": "webdataset",
    "datasets": "datasets",
}


def facts(cores: int) -> dict[str, Any]:
    """Give what a reader needs to place the figures."""
    return {
        "cpu": cpu_model(),
        "cores_used": cores,
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := version_of(name))}
        | {name: found for name, at in PACKAGES_APART.items() if (found := version_in(at, name))},
        "torch_threads": torch.get_num_threads(),
        "load_at_start": os.getloadavg()[0],
        "commit": commit(),
    }


def environment(cores: int) -> dict[str, str]:
    """Give the environment of a cell: thread pools as wide as the cores it may use.

    Poisoned blocks are for tests; they would be timed. So would compiling: an installed library
    has its bytecode, whatever this environment says of writing it.
    """
    left_out = ("HEADRACE_POISON", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in os.environ.items() if name not in left_out}
    pools = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    quiet = {"PYTHONWARNINGS": "ignore", "PYTHONHASHSEED": "0"}
    return inherited | dict.fromkeys(pools, str(cores)) | quiet


def use_cores(count: int) -> int:
    """Keep this process and its children to the first cores that it may use.

    Returns:
        How many those are; all of them where the system cannot say.
    """
    if not hasattr(os, "sched_setaffinity"):
        return os.cpu_count() or 1
    allowed = sorted(os.sched_getaffinity(0))[:count]
    os.sched_setaffinity(0, allowed)
    return len(allowed)


def cpu_model() -> str:
    """Give the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def version_of(package: str) -> str:
    """Give an installed version, or nothing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def version_in(environment: str, package: str) -> str:
    """Give the version of a package in an environment of its own, or nothing."""
    places = [str(path) for path in (ENVIRONMENTS / environment).glob("lib/*/site-packages")]
    found = distributions(name=package, path=places)
    return next((distribution.version for distribution in found), "")


def commit() -> str:
    """Give the commit of the checkout, marked when files differ from it; or nothing."""
    command = ["git", "describe", "--always", "--dirty"]
    folder = Path(__file__).parent
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
