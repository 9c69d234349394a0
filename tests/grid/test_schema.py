"""The published JSON Schemas say what the reader of grids and certificates does."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from pytest_redline.certificate import to_bytes
from pytest_redline.certificate_schema import json_schema as certificate_schema
from pytest_redline.gate import certificate_of
from pytest_redline.grid_file import load_grid
from pytest_redline.grid_schema import GridModel
from pytest_redline.grid_schema import json_schema as grid_schema
from pytest_redline.paths import fixtures

GRIDS = sorted(fixtures().rglob("*.redline.yaml"))
RECORDED = next(path for path in GRIDS if path.name == "llada2_math.redline.yaml")
MINIMAL = {
    "redline": 1,
    "name": "made",
    "source": {"outcomes": "runs.csv"},
    "reference": "ref",
    "configurations": {"ref": {"x": 1}, "cand": {"x": 2}},
}


def accepts(schema: dict, data: object) -> bool:
    return jsonschema.Draft202012Validator(schema).is_valid(data)


@pytest.mark.parametrize("schema", [grid_schema(), certificate_schema()], ids=["grid", "certificate"])
def test_schema_is_itself_valid_and_plain_json(schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert json.loads(json.dumps(schema)) == schema


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.name)
def test_every_shipped_grid_fits_the_schema(path):
    jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), grid_schema())


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"alpha": 0.1, "delta": 0.1, "population": "prompts"},
        {"prompts": {"file": "prompts.jsonl"}},
        {"cost": "tokens_per_forward"},
        {"cost": {"measure": "a/b", "better": "lower", "pool": "mean_of_ratios"}},
        {"configurations": {"ref": {"x": 1, "cost": 4.4}, "cand": {"x": [2], "cost": "unknown"}, "bare": None}},
        {"source": {"outcomes": {"file": "r.csv", "columns": {"prompt": ["a", "b"], "correct": {"column": "c"}}}}},
        {"source": {"outcomes": {"file": "r.csv", "sha256": "0" * 64, "columns": {"tokens": "t"}}}},
        {"source": {"outcomes": {}}, "configurations": {"ref": {"log": "a.csv"}, "cand": {"log": "b.csv"}}},
        {"grid": {"accept_threshold": [0.8, 0.9], "mode": ["a", None, True]}},
        {"serving": "cand"},
        {"serving": {"file": "serve.yaml", "keys": {"x": "a.b"}}},
        {"groups": {"by": "kind", "alpha": {"hard": 0.15}}},
        {"population": {"name": "traffic", "design": "finite_pool", "pool": 1319}},
        {"clusters": {"by": "template", "remedy": "one_per_cluster", "seed": 3}},
        {"groups": {"by": "kind"}, "mix": {"shares": {"math": 0.7, "code": 0.3}, "test": "hb"}},
        {"clusters": {"by": "template", "remedy": "cluster_means", "test": "hb"}},
        {"risks": {"format": {"measure": "has_answer", "alpha": 0.02}}},
        {"risks": {"latency": {"measure": "seconds", "over": 2, "alpha": 0.1}}},
        {"risks": {"score": {"measure": "judge", "loss": "drop", "test": "wsr", "seed": 3, "alpha": 0.1}}},
    ],
)
def test_valid_grid_fits_the_schema_as_it_fits_the_model(more):
    assert accepts(grid_schema(), MINIMAL | more)
    assert GridModel.model_validate(MINIMAL | more)


@pytest.mark.parametrize(
    "more",
    [
        {"nmae": "x"},
        {"redline": 2},
        {"name": "a/b"},
        {"name": 5},
        {"alpha": 0},
        {"alpha": 1},
        {"alpha": "0.1"},
        {"delta": 1.5},
        {"reference": ""},
        {"reference": 5},
        {"source": {"outcome": "r.csv"}},
        {"source": {"outcomes": "r.csv", "more": 1}},
        {"source": {"outcomes": {"file": "r.csv", "colums": {}}}},
        {"source": {"outcomes": {"file": "r.csv", "sha256": "abc"}}},
        {"source": {"outcomes": {"file": "r.csv", "columns": {"correct": {"colum": "c"}}}}},
        {"source": {"outcomes": {"file": "r.csv", "columns": {"tokens": 5}}}},
        {"cost": {"measur": "x"}},
        {"cost": {"measure": "x", "better": "up"}},
        {"configurations": {"ref": 5}},
        {"configurations": {"ref": {"cost": 0}}},
        {"configurations": {"ref": {"cost": "fast"}}},
        {"grid": {"x": []}},
        {"grid": {"x": 5}},
        {"grid": {"x": [[1]]}},
        {"serving": {"file": "s.yaml"}},
        {"serving": {"file": "s.yaml", "keys": {}}},
        {"groups": {"alpha": {"hard": 0.1}}},
        {"groups": {"by": "kind", "alpha": {"hard": 1.5}}},
        {"population": {"name": "traffic"}},
        {"population": {"name": "traffic", "design": "random"}},
        {"clusters": {"by": "template"}},
        {"mix": {"shares": {"math": 0.7, "code": 0.3}}},
        {"mix": {"shares": {}, "test": "hb"}},
        {"clusters": {"by": "template", "remedy": "cluster_means", "test": "exact"}},
        {"risks": {"format": {"alpha": 0.02}}},
        {"risks": {"format": {"measure": "has_answer"}}},
        {"risks": {"format": {"measure": "has_answer", "alpha": 0.02, "limit": 3}}},
        {"risks": {"score": {"measure": "judge", "loss": "drop", "test": "auto", "alpha": 0.1}}},
        {"prompts": {"fil": "p.csv"}},
    ],
)
def test_mistake_fits_neither_the_schema_nor_the_model(more):
    assert not accepts(grid_schema(), MINIMAL | more)
    with pytest.raises(ValueError, match="validation error"):
        GridModel.model_validate(MINIMAL | more)


@pytest.mark.parametrize("key", ["redline", "name", "source", "reference"])
def test_required_key_is_required_by_the_schema(key):
    assert not accepts(grid_schema(), {name: value for name, value in MINIMAL.items() if name != key})


def test_schema_describes_every_key_of_a_grid_file_that_is_not_a_plain_map():
    described = grid_schema()["properties"]
    bare = {"prompts", "cost", "source", "configurations", "groups", "clusters", "mix"}  # described by their own models
    assert {key for key, value in described.items() if "description" not in value} <= bare


@pytest.fixture(scope="module")
def certificate():
    return json.loads(to_bytes(certificate_of(load_grid(RECORDED))))


def test_real_certificate_fits_its_schema(certificate):
    jsonschema.validate(certificate, certificate_schema())


def test_certificate_with_another_or_a_missing_key_does_not_fit(certificate):
    schema = certificate_schema()
    assert not accepts(schema, certificate | {"more": 1})
    row = certificate["configurations"][0]
    assert not accepts(schema, certificate | {"configurations": [row | {"k": -1}]})
    assert not accepts(schema, certificate | {"configurations": [row | {"verdict": "fine"}]})
    assert not accepts(schema, certificate | {"configurations": [row | {"more": 1}]})
    assert not accepts(schema, {key: value for key, value in certificate.items() if key != "statement"})
