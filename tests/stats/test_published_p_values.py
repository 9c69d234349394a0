"""Every p-value that the paper prints (Tables 4 and 8 to 13), to its printed digits."""

import json
from pathlib import Path

import pytest

from pytest_redline.stats.multiplicity import holm
from pytest_redline.stats.risk import binomial_tail

TABLES = json.loads((Path(__file__).parents[1] / "data" / "redline_tables.json").read_text(encoding="utf-8"))["tables"]
ROWS = [(f"table{number}", row) for number in (4, 8, 9, 10, 11, 12, 13) for row in TABLES[f"table{number}"]["rows"]]
PRINTED = [
    pytest.param(row["k"], row["n"], float(alpha), text, row["p_exact"][alpha], id=f"{table}-{row['config']}-{alpha}")
    for table, row in ROWS
    for alpha, text in row["p_printed"].items()
]


def print_p(p: float) -> str:
    """Print as the paper does: three decimals from 1e-3 on, below one significant digit and a bare exponent."""
    if p >= 1e-3:
        return f"{p:.3f}"
    digit, exponent = f"{p:.0e}".split("e")
    return f"{digit}e{int(exponent)}"


def test_all_136_are_there():
    assert len(PRINTED) == 136


@pytest.mark.parametrize(("k", "n", "alpha", "printed", "exact"), PRINTED)
def test_p_value_equals_the_printed_one(k, n, alpha, printed, exact):
    p = binomial_tail(k, n, alpha)
    assert print_p(p) == printed
    assert p == pytest.approx(exact, rel=6e-6)


def test_table_8_certifies_nothing_but_the_reference_at_05_and_every_row_from_10_on():
    rows = [*TABLES["table8"]["rows"], *TABLES["table8"]["rows_missing_known"]]
    labels = [row["config"] for row in rows]
    assert len(rows) == TABLES["table8"]["m"]
    for alpha, expected in [(0.05, {"acc95/semi90"}), (0.10, set(labels)), (0.15, set(labels)), (0.20, set(labels))]:
        certified = holm([binomial_tail(row["k"], 1012, alpha) for row in rows], 0.10)
        assert {label for label, passes in zip(labels, certified, strict=True) if passes} == expected
