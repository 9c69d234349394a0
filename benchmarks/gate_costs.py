"""What the gate costs: python benchmarks/gate_costs.py

Prints four figures with their goals: the processor time that loading the plugin adds to a session without grids (side
by side with ``-p no:redline``), certifying a grid of usual size after imports, its bootstrap, and a very large grid's
time and memory.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from pytest_redline.certificate import certify
from pytest_redline.grid import Columns, Configuration, CostMeasure, Grid, RecordedSource
from pytest_redline.outcomes import Outcomes

PAIRS = 15  # of sessions with and without the plugin, alternating
REPEATS = 20


def main() -> None:
    added = plugin_load()
    print(f"loading the plugin adds {1000 * added:.1f} ms to a session without grids (goal: under 30 ms)")
    grid, outcomes = made_up(m=50, n=1012)
    plain = median_time(lambda: certify(grid, outcomes, intervals=False))
    print(f"certify, m = 50, n = 1,012, without intervals: {1000 * plain:.1f} ms (goal: under 50 ms)")
    whole = median_time(lambda: certify(grid, outcomes), repeats=3)
    print(f"its bootstrap, 49 required rows: {whole - plain:.2f} s (goal: under 1 s)")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds, gigabytes = pool.apply(very_large)
    print(f"certify, m = 200, n = 200,000, without intervals: {seconds:.1f} s, {gigabytes:.2f} GB (goals: 10 s, 2 GB)")


def plugin_load() -> float:
    """Return the median difference in processor seconds of one pytest session with and without the plugin."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_nothing.py").write_text("def test_nothing(): pass\n")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        differences = []
        for _ in range(PAIRS):
            times = []
            for extra in ([], ["-p", "no:redline"]):
                start = children_seconds()
                subprocess.run([*command, *extra], cwd=folder, check=True, stdout=subprocess.DEVNULL)
                times.append(children_seconds() - start)
            differences.append(times[0] - times[1])
    return statistics.median(differences)


def children_seconds() -> float:
    """Return the processor seconds of all finished child processes: steadier than wall time on a shared machine."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def made_up(m: int, n: int) -> tuple[Grid, Outcomes]:
    """Return a grid and outcomes of the given size: a reference right on 85 %, candidates a little worse."""
    rng = np.random.default_rng(0)
    reference = rng.random(n) < 0.85
    correct = np.stack([reference, *(reference & (rng.random(n) > 0.03 + 0.08 * index / m) for index in range(1, m))])
    measures = {
        "tokens": rng.integers(20, 900, (m, n)).astype(np.float64),
        "forwards": rng.integers(5, 200, (m, n)).astype(np.float64),
    }
    labels = tuple(f"c{index}" for index in range(m))
    grid = Grid(
        path=Path("made-up.redline.yaml"),
        name="made-up",
        alpha=0.1,
        delta=0.1,
        reference="c0",
        configurations=tuple(Configuration(label, {"index": index}, 1) for index, label in enumerate(labels)),
        source=RecordedSource(None, Columns()),
        cost=CostMeasure("tokens_per_forward", "higher", "ratio_of_sums", "tokens", "forwards"),
        grader="made up",
        population="made-up prompts",
    )
    return grid, Outcomes(labels, tuple(f"p{index}" for index in range(n)), correct, measures)


def median_time(call: object, repeats: int = REPEATS) -> float:
    """Return the median seconds of a call, after one to warm up."""
    assert callable(call)
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def very_large() -> tuple[float, float]:
    """Return seconds of certifying, and the peak memory of this process in GB."""
    grid, outcomes = made_up(m=200, n=200_000)
    start = time.perf_counter()
    certify(grid, outcomes, intervals=False)
    return time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main()
