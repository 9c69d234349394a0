"""What a study costs: python benchmarks/study_costs.py

Prints the seconds that a thousand half splits with every selector at the paper's four budgets take, after imports: for
a grid of the size of LLaDA2 math, with and without the one rule that reads prompts in order, and for one of 50
configurations.
"""

from __future__ import annotations

import time

import numpy as np

from pytest_redline.grid import CostMeasure
from pytest_redline.outcomes import Outcomes
from pytest_redline.stats.selectors import NAMES
from pytest_redline.stats.splits import SEED
from pytest_redline.studied import Studied
from pytest_redline.study import Plan, study

SELECTORS = (*(name for name in NAMES if name != "MEAN-t"), "MEAN-0", "MEAN-5", "MEAN-10")


def main() -> None:
    for m, goal in ((7, 5), (50, 30)):
        studied = made_up(m)
        for selectors in (SELECTORS, tuple(name for name in SELECTORS if name != "NETHOLM-WSR")):
            plan = Plan((0.05, 0.10, 0.15, 0.20), 0.10, 1000, SEED, selectors, sizes=(542,))
            start = time.perf_counter()
            study(studied, plan)
            seconds = time.perf_counter() - start
            print(
                f"m = {m}, n = 1,012, 1,000 splits and subsets, {len(selectors)} selectors: {seconds:.1f} s "
                f"(goal: under {goal} s)"
            )


def made_up(m: int) -> Studied:
    """Return outcomes of m configurations on 1,012 prompts; the faster ones break more."""
    rng = np.random.default_rng(1)
    correct = rng.random((m, 1012)) < np.linspace(0.86, 0.80, m)[:, None]
    outcomes = Outcomes(tuple(f"c{i}" for i in range(m)), tuple(f"q{i}" for i in range(1012)), correct)
    measure = CostMeasure("speed", "higher", "ratio_of_sums", None, None, declared=True)
    return Studied(outcomes, 0, measure, np.linspace(0, 0.6, m), None, 0.10, ())


if __name__ == "__main__":
    main()
