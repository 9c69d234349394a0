"""A certificate verifies as it was written, and in no other way."""

from __future__ import annotations

import base64
import copy
import json
import random
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_outcomes import TOKENS_PER_FORWARD, make_grid, make_outcomes, violations

from pytest_redline import certificate as certificate_module
from pytest_redline import packing
from pytest_redline import verify as verify_module
from pytest_redline.certificate import certify, to_bytes
from pytest_redline.certificate_schema import Provenance
from pytest_redline.errors import CertificateError
from pytest_redline.grid import CostMeasure, Sample
from pytest_redline.packing import pack
from pytest_redline.statement import sha256_of
from pytest_redline.stats import bootstrap
from pytest_redline.verify import verify

LABELS = ["ref", "cand", "bad"]
OUTCOMES = make_outcomes(
    {"ref": [1] * 80, "cand": [1] * 79 + [0], "bad": [0] * 60 + [1] * 20},
    measures={
        "tokens": dict.fromkeys(LABELS, [9.5] * 80),
        "forwards": {"ref": [3, 4] * 40, "cand": [1, 3] * 40, "bad": [1] * 80},
    },
    groups=["a"] * 60 + ["b"] * 20,
    outputs={"ref": range(80), "cand": [9] * 80, "bad": [1] * 80},
)
GRID = make_grid(LABELS, cost=TOKENS_PER_FORWARD, groups={"a": 0.2}, serving="cand")


def draw_few(patch: pytest.MonkeyPatch) -> None:
    """So few resamples that a certificate is computed again in milliseconds."""
    for module in (bootstrap, certificate_module):
        patch.setattr(module, "default_resamples", lambda n: 60)


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch):
    draw_few(monkeypatch)


with pytest.MonkeyPatch.context() as few:
    draw_few(few)
    WRITTEN = to_bytes(certify(GRID, OUTCOMES, notes=["a note"]))
DATA = json.loads(WRITTEN)


@pytest.fixture
def rejects(tmp_path):
    """A function that says why bytes, or re-digested data, do not verify; None where they do."""
    path = tmp_path / "made.certificate.json"

    def reason(content: bytes | dict[str, Any]) -> str | None:
        path.write_bytes(content if isinstance(content, bytes) else redigested(content))
        found: list[str] = []
        try:
            verify(path)
        except CertificateError as error:
            found += error.problems or ["no reason at all"]
        assert all("made.certificate.json: " in problem for problem in found)
        return "\n".join(found) or None

    return reason


def redigested(data: dict[str, Any]) -> bytes:
    """A certificate that someone changed and gave a digest of its new content."""
    content = {key: value for key, value in data.items() if key != "digest"}
    content["digest"] = "sha256:" + sha256_of(content)
    return json.dumps(content, indent=1).encode() + b"\n"


def changed(*path: Any, to: Any) -> dict[str, Any]:
    """The certificate's data with another value at a path."""
    data = copy.deepcopy(DATA)
    target: Any = data
    for key in path[:-1]:
        target = target[key]
    assert target[path[-1]] != to
    target[path[-1]] = to
    return data


# -- As written ---------------------------------------------------------------------------------------------------


def test_written_certificate_verifies_and_comes_back_whole(tmp_path):
    certificate = certify(GRID, OUTCOMES, notes=["a note"])
    path = tmp_path / "it.json"
    path.write_bytes(to_bytes(certificate))
    assert verify(path) == certificate


def test_redigesting_an_unchanged_certificate_gives_the_same_bytes():
    assert redigested(DATA) == WRITTEN


OWN_COST = CostMeasure("tokens / forwards", "lower", "mean_of_ratios", "tokens", "forwards")
QUESTIONS = replace(OUTCOMES, prompts=tuple(f"Question {number}\nHow many?" for number in range(80)))


@pytest.mark.parametrize(
    ("grid", "outcomes"),
    [
        (make_grid(["ref", "cand"]), violations(100, {"cand": 1})),
        (make_grid(["ref", "cand"], costs={"ref": 1.0, "cand": None}), violations(100, {"cand": 1})),
        (make_grid(["ref", "cand"], costs={"ref": 1.5, "cand": 2.5}, serving="ref"), violations(29, {"cand": 9})),
        (replace(make_grid(["réf", "cand"], reference="réf"), name="naïf"), violations(40, {"cand": 0}, "réf")),
        (replace(GRID, cost=OWN_COST), OUTCOMES),
        (replace(GRID, cost=replace(TOKENS_PER_FORWARD, pool="mean_of_ratios")), OUTCOMES),
        (replace(GRID, sample=Sample(80, 7)), QUESTIONS),
    ],
    ids=["no cost", "unknown cost", "not certified", "not ASCII", "own cost", "other pooling", "sample of questions"],
)
def test_every_kind_of_certificate_verifies(rejects, grid, outcomes):
    assert rejects(to_bytes(certify(grid, outcomes))) is None


def test_certificate_verifies_where_zlib_compresses_otherwise(rejects, monkeypatch):
    def stored(data: bytes, level: int) -> bytes:
        packer = zlib.compressobj(0)
        return packer.compress(data) + packer.flush()

    monkeypatch.setattr(packing.zlib, "compress", stored)
    assert pack(OUTCOMES).prompts != DATA["outcomes"]["prompts"]
    assert rejects(WRITTEN) is None
    assert "not the bytes that were written" in rejects(WRITTEN + b"\n")


# -- Any byte -----------------------------------------------------------------------------------------------------


@pytest.fixture
def unchanged(monkeypatch):
    """Do bytes pass by digest and bytes alone, with nothing computed again."""
    monkeypatch.setattr(verify_module, "differences", lambda certificate: [])
    held = [b""]
    monkeypatch.setattr(Path, "read_bytes", lambda path: held[0])

    def passes(content: bytes) -> bool:
        held[0] = content
        try:
            verify(Path("held.json"))
        except CertificateError:
            return False
        return True

    return passes


def test_every_changed_byte_is_refused(unchanged):
    assert unchanged(WRITTEN)
    for position in range(len(WRITTEN)):
        content = bytearray(WRITTEN)
        content[position] ^= 1 << position % 8
        assert not unchanged(bytes(content)), position


def test_removed_or_doubled_byte_is_refused(unchanged):
    for position in range(0, len(WRITTEN), 3):
        length = position % 2 * 2  # 0 removes the byte, 2 doubles it
        content = WRITTEN[:position] + WRITTEN[position : position + 1] * length + WRITTEN[position + 1 :]
        assert not unchanged(content), position


def test_changed_bytes_that_are_computed_with_end_in_no_other_error(rejects):
    first = WRITTEN.index(b'"statement"')
    last = WRITTEN.index(b'"promise"')
    for position in [*range(first, last, 2), *range(0, len(WRITTEN), 41)]:
        content = bytearray(WRITTEN)
        content[position] ^= 0x08
        assert rejects(bytes(content)), position


@pytest.mark.parametrize(
    "content",
    [
        WRITTEN + b"\n",
        WRITTEN + b" ",
        b" " + WRITTEN,
        WRITTEN[:-1],
        WRITTEN.replace(b"\n", b"\r\n"),
        WRITTEN.replace(b"\n ", b"\n  ", 1),
        b"\xef\xbb\xbf" + WRITTEN,
        WRITTEN.decode().encode("utf-16"),
        json.dumps(DATA).encode(),
        json.dumps(DATA, indent=1, sort_keys=True).encode() + b"\n",
        WRITTEN.replace(b'"alpha": 0.1,', b'"alpha": 0.10,', 1),
        WRITTEN.replace(b'"alpha": 0.1,', b'"alpha": 1e-1,', 1),
        WRITTEN.replace(b'"n": 80', b'"n": 80.0', 1),
        WRITTEN.replace(b'"n": 80', b'"n": "40"', 1),
        WRITTEN.replace(b'"certified": true', b'"certified": 1', 1),
        WRITTEN.replace(b'"name": "made"', b'"name": "m\\u0061de"', 1),
        WRITTEN.replace(b'"name": "made",', b'"name": "other",\n "name": "made",', 1),
        WRITTEN.replace(b'"k": 1,', b'"k": 0,\n   "k": 1,', 1),
        WRITTEN.replace(b'"serving": "cand",\n', b"", 1),
        WRITTEN + WRITTEN,
    ],
)
def test_same_content_in_other_bytes_is_refused(rejects, content):
    assert content != WRITTEN
    assert rejects(content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a certificate"),
        (b"{", "not a certificate"),
        (b"\xff\xfe\x00", "not a certificate"),
        (b"[]", "valid dictionary"),
        (b"null", "valid dictionary"),
        (b"1", "valid dictionary"),
        (b"{}", "Field required"),
        (b"[" * 100_000, "not a certificate"),
        (b'{"name": ' * 100_000, "not a certificate"),
        (b"9" * 5_000, "not a certificate"),
        (WRITTEN.replace(b'"alpha": 0.1,', b'"alpha": NaN,', 1), "NaN is not a JSON number"),
        (WRITTEN.replace(b'"alpha": 0.1,', b'"alpha": -Infinity,', 1), "-Infinity is not a JSON number"),
        (WRITTEN.replace(b'"alpha": 0.1,', b'"alpha": 1e999,', 1), "alpha"),
        (WRITTEN.replace(b'"k": 1,', b'"k": -1,', 1), "configurations"),
        (WRITTEN.replace(b'"k": 1,', b'"k": 1.5,', 1), "configurations"),
        (WRITTEN.replace(b'"redline_certificate": 1', b'"redline_certificate": 2', 1), "redline_certificate"),
        (WRITTEN.replace(b'"number": 1', b'"number": 1e999', 1), "knobs"),
        (WRITTEN.replace(b'"number": 1', b'"number": ' + b"[" * 300 + b"]" * 300, 1), "made.certificate.json"),
    ],
)
def test_what_is_no_certificate_is_refused_with_a_reason(rejects, content, message):
    assert message in rejects(content)


def test_missing_file_and_folder_are_refused(tmp_path):
    for path in (tmp_path / "missing.json", tmp_path):
        with pytest.raises(CertificateError, match="cannot be read"):
            verify(path)


# -- Changed, and given a new digest ------------------------------------------------------------------------------


def own_cost(name: str, **others: Any) -> dict[str, Any]:
    """A cost measure of one's own, with columns that need not be those of its name."""
    plain = {"better": "higher", "pool": "ratio_of_sums", "numerator": None, "denominator": None, "declared": False}
    return {"name": name, **plain, **others}


def relabelled(label: str) -> dict[str, Any]:
    """The certificate with another label for its deployed configuration, wherever it stands."""
    data = json.loads(WRITTEN.replace(b'"cand"', json.dumps(label).encode()))
    assert data["deployed"] == label
    return data


ROWS = {row["label"]: index for index, row in enumerate(DATA["configurations"])}
BAD, CAND = ROWS["bad"], ROWS["cand"]
RIGHT = DATA["outcomes"]["correct"]


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (changed("statement", "hash", to="0" * 64), "statement.hash"),
        (changed("statement", "prompts", "population", to="everything"), "statement.hash"),
        (changed("statement", "prompts", "sha256", to="0" * 64), "statement.prompts.sha256"),
        (changed("statement", "prompts", "n", to=81), "statement.prompts.n"),
        (changed("statement", "grader", to="other"), "statement.hash"),
        (changed("statement", "reference", to="cand"), "reference"),
        (changed("statement", "alpha", to=0.5), "alpha: says 0.1, the outcomes give 0.5"),
        (changed("statement", "alpha", to=1.5), "statement.alpha"),
        (changed("statement", "alpha", to=0.0), "statement.alpha"),
        (changed("statement", "delta", to=0.2), "delta: says 0.1, the outcomes give 0.2"),
        (changed("statement", "delta", to=-1.0), "statement.delta"),
        (changed("statement", "groups", to=None), "statement.hash"),
        (changed("statement", "groups", "alpha", to={"nowhere": 0.2}), "no prompt is in group 'nowhere'"),
        (changed("statement", "configurations", CAND, "knobs", to={"number": 5}), "statement.hash"),
        (
            changed("statement", "configurations", to=DATA["statement"]["configurations"][:2]),
            "not those of the statement",
        ),
        (changed("statement", "configurations", BAD, "label", to="cand"), "not those of the statement"),
        (changed("alpha", to=0.2), "alpha: says 0.2, the outcomes give 0.1"),
        (changed("delta", to=0.05), "delta: says 0.05"),
        (changed("n", to=81), "n: says 81"),
        (changed("m", to=4), "m: says 4"),
        (changed("reference", to="cand"), "reference: says 'cand'"),
        (changed("serving", to="bad"), "configurations[bad].required: says False"),
        (changed("serving", to="ref"), "required"),
        (changed("serving", to=None), "configurations[bad].required"),
        (changed("serving", to="nobody"), "serving: 'nobody' is not one of the configurations"),
        (changed("deployed", to="bad"), "deployed: says 'bad', the outcomes give 'cand'"),
        (changed("promise", to="It is safe."), "promise: says"),
        (changed("cost", to=None), "cost"),
        (changed("cost", "better", to="lower"), "cost.better: says 'lower', tokens_per_forward has 'higher'"),
        (changed("cost", "pool", to="mean_of_ratios"), "configurations"),
        (changed("cost", "numerator", to="forwards"), "cost.numerator: says 'forwards'"),
        (changed("cost", "numerator", to=None), "cost.numerator: says None"),
        (changed("cost", "denominator", to="tokens"), "cost.denominator: says 'tokens'"),
        (changed("cost", "denominator", to=None), "cost.denominator: says None"),
        (changed("cost", "name", to="seconds_per_prompt"), "cost.better: says 'higher', seconds_per_prompt has"),
        (changed("cost", "name", to="speed"), "cost.numerator: says 'tokens', speed has 'speed'"),
        (changed("cost", to=own_cost("", numerator=None)), "cost.name: '' names no measure"),
        (changed("cost", to=own_cost("/forwards", numerator=None, denominator="forwards")), "names no measure"),
        (changed("cost", to=own_cost("seconds", numerator="seconds")), "outcomes.measures: seconds is missing"),
        (
            changed("cost", to=own_cost("tokens/seconds", numerator="tokens", denominator="seconds")),
            "seconds is missing",
        ),
        (changed("cost", "declared", to=True), "cost.numerator: says 'tokens', tokens_per_forward has None"),
        (changed("cost", to=own_cost("price", declared=True, numerator="tokens")), "cost.numerator: says 'tokens'"),
        (changed("cost", to=own_cost("price", declared=True, denominator="tokens")), "cost.denominator: says"),
        (changed("cost", to=own_cost("price", declared=True, pool="mean_of_ratios")), "cost.pool: says"),
        (changed("configurations", ROWS["ref"], "cost", to=None), "configurations[ref].cost: is missing"),
        (changed("name", to="../made"), "name: '../made' cannot name a grid"),
        (changed("name", to=""), "name: '' cannot name a grid"),
        (changed("name", to="x" * 101), "cannot name a grid"),
        (relabelled("two words"), "configurations: 'two words' cannot name a configuration"),
        (relabelled("true"), "configurations: 'true' cannot name a configuration"),
        (relabelled("cand/"), "configurations: 'cand/' cannot name a configuration"),
        (changed("statement", "prompts", "sample", to={}), "statement.prompts.sample: not a draw of these prompts"),
        (changed("statement", "prompts", "sample", to={"n": 80}), "statement.prompts.sample"),
        (changed("statement", "prompts", "sample", to={"n": 800, "seed": 1}), "statement.prompts.sample"),
        (changed("configurations", CAND, "k", to=0), "configurations[cand].k: says 0, the outcomes give 1"),
        (changed("configurations", CAND, "n", to=50), "configurations[cand].n: says 50"),
        (changed("configurations", CAND, "p", to=1e-9), "configurations[cand].p"),
        (changed("configurations", CAND, "level", to=0.09), "configurations[cand].level"),
        (changed("configurations", BAD, "certified", to=True), "configurations[bad].certified: says True"),
        (changed("configurations", BAD, "verdict", to="undecided"), "configurations[bad].verdict"),
        (changed("configurations", BAD, "required", to=True), "configurations[bad].required"),
        (changed("configurations", CAND, "inert", to=True), "configurations[cand].inert"),
        (changed("configurations", CAND, "gained", to=1), "configurations[cand].gained"),
        (changed("configurations", CAND, "accuracy", to=1.0), "configurations[cand].accuracy"),
        (changed("configurations", CAND, "net_accuracy", to=0.0), "configurations[cand].net_accuracy"),
        (changed("configurations", CAND, "net_accuracy_interval", to=[0.0, 1.0]), "net_accuracy_interval"),
        (changed("configurations", CAND, "risk_interval", to=[0.0, 0.01]), "configurations[cand].risk_interval"),
        (changed("configurations", CAND, "risk_upper", to=0.01), "configurations[cand].risk_upper"),
        (changed("configurations", CAND, "risk_upper_simultaneous", to=0.01), "risk_upper_simultaneous"),
        (changed("configurations", BAD, "risk_lower_simultaneous", to=0.01), "risk_lower_simultaneous"),
        (changed("configurations", CAND, "cost", to=9.0), "configurations[cand].cost"),
        (changed("configurations", CAND, "cost", to=0.0), "greater than 0"),
        (changed("configurations", CAND, "cost", to=None), "configurations[cand].gain"),
        (changed("configurations", CAND, "gain", to=0.6), "configurations[cand].gain"),
        (changed("configurations", CAND, "gain_interval", to=[0.0, 1.0]), "gain_interval"),
        (changed("configurations", BAD, "needed", to=None), "configurations[bad].needed"),
        (changed("configurations", BAD, "needed", "violations_fewer", to={"all": 1}), "needed.violations_fewer"),
        (changed("configurations", BAD, "needed", "prompts", to=10), "needed.prompts"),
        (changed("configurations", CAND, "changes", to=[]), "configurations[cand].changes"),
        (changed("configurations", to=DATA["configurations"][::-1]), "configurations"),
        (changed("configurations", to=DATA["configurations"][:2]), "not those of the statement"),
        (changed("groups", to=[]), "groups"),
        (changed("groups", 0, "configurations", CAND, "k", to=1), "groups[a].configurations[cand].k"),
        (changed("groups", 0, "alpha", to=0.3), "groups[a].alpha"),
        (
            changed("groups", 1, "configurations", CAND, "joint_risk", to=0.0),
            "groups[b].configurations[cand].joint_risk",
        ),
        (changed("frontier", "alpha_min", to=0.01), "frontier.alpha_min"),
        (changed("frontier", "note", to="A certificate."), "frontier.note"),
        (changed("frontier", "rows", 0, "deployed", to="bad"), "frontier.rows[0].deployed"),
        (changed("frontier", "rows", to=[]), "frontier.rows"),
        (changed("bootstrap", to={**DATA["bootstrap"], "seed": 1}), "bootstrap.seed: says 1"),
        (changed("bootstrap", to={**DATA["bootstrap"], "resamples": 10}), "bootstrap.resamples: says 10"),
        (changed("bootstrap", to={**DATA["bootstrap"], "more": 1}), "bootstrap.more"),
        (changed("bootstrap", to={}), "bootstrap.resamples: is missing"),
        (changed("outcomes", "correct", to={**RIGHT, "cand": RIGHT["ref"]}), "configurations[cand].k: says 1"),
        (changed("outcomes", "correct", to={**RIGHT, "ref": RIGHT["cand"]}), "configurations[cand].k: says 1"),
        (changed("outcomes", "correct", to={"ref": RIGHT["ref"]}), "outcomes: cannot be unpacked"),
        (changed("outcomes", "correct", to={**RIGHT, "more": RIGHT["ref"]}), "other labels"),
        (changed("outcomes", "correct", "cand", to="!!"), "outcomes: cannot be unpacked"),
        (changed("outcomes", "correct", "cand", to=""), "outcomes: cannot be unpacked"),
        (changed("outcomes", "groups", to=None), "no prompt is in group 'a'"),
        (changed("outcomes", "measures", to={}), "outcomes.measures: tokens, forwards is missing"),
        (changed("outcomes", "outputs", "cand", to=DATA["outcomes"]["outputs"]["ref"]), None),
    ],
)
def test_change_with_a_new_digest_is_refused_for_what_contradicts_the_outcomes(rejects, data, where):
    reason = rejects(data)
    if where is None:
        assert reason is None  # other answer texts that contradict nothing: consistency is all that can be proved
    else:
        assert where in reason
        assert "the digest is not" not in reason


@pytest.mark.parametrize("label", LABELS)
def test_any_flipped_verdict_with_a_new_digest_contradicts_the_counts(rejects, label):
    packed = base64.b64decode(RIGHT[label])
    for prompt in range(0, 80, 9):
        bits = bytearray(zlib.decompress(packed))
        bits[prompt // 8] ^= 0x80 >> prompt % 8
        text = base64.b64encode(zlib.compress(bytes(bits))).decode()
        assert rejects(changed("outcomes", "correct", label, to=text))


IDS = [f"p{number}" for number in range(80)]


def packed_json(text: str) -> str:
    """A list of ids or groups as a certificate holds it."""
    return base64.b64encode(zlib.compress(text.encode())).decode()


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ([], "outcomes: cannot be unpacked"),
        (["p0"] * 80, "outcomes: cannot be unpacked"),
        ([*IDS[:79], "p0"], "outcomes: cannot be unpacked"),
        (IDS[::-1], "outcomes.prompts: not in natural order"),
        (sorted(IDS), "outcomes.prompts: not in natural order"),
        (["", *IDS[1:]], "outcomes.prompts: an id is blank"),
        ([" \n", *IDS[1:]], "outcomes.prompts: an id is blank"),
        ([*IDS[:79], "p\ud800"], "outcomes.prompts: an id is blank or holds half a character"),
    ],
)
def test_prompts_that_no_source_hands_over_are_refused_with_a_new_digest(rejects, ids, reason):
    assert reason in rejects(changed("outcomes", "prompts", to=packed_json(json.dumps(ids))))


@pytest.mark.parametrize("name", ["b\n", "b\x1b[2K", "b\x9b", "b\u2028", "\udc00"])
def test_groups_whose_names_hold_control_characters_are_refused(rejects, name):
    text = packed_json(json.dumps(["a"] * 60 + [name] * 20))
    assert "outcomes.groups: the name of a group holds a control character" in rejects(
        changed("outcomes", "groups", to=text)
    )


@pytest.mark.parametrize("key", ["prompts", "groups"])
@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000, "[" + "9" * 5000])
def test_packed_texts_that_cannot_be_read_are_one_problem(rejects, key, text):
    reason = rejects(changed("outcomes", key, to=packed_json(text)))
    assert "made.certificate.json: outcomes: cannot be unpacked (" in reason
    assert len(reason.splitlines()) == 1


# -- Nothing that could pass for more output ----------------------------------------------------------------------

SPOOF = "\nother.json: consistent and unchanged; gate passed"


@pytest.mark.parametrize("odd", [SPOOF, "\r", "\x1b[1A", "\x7f", "\x9b2K", "\u2028", "\ud83d", "\0", "\t"])
def test_control_characters_are_refused_wherever_they_stand(rejects, odd):
    for path in (
        ("name",),
        ("promise",),
        ("cost", "name"),
        ("statement", "prompts", "population"),
        ("statement", "grader"),
        ("statement", "groups", "by"),
        ("warnings", 0),
        ("configurations", CAND, "label"),
        ("groups", 0, "name"),
    ):
        reason = rejects(changed(*path, to="x" + odd))
        assert reason.endswith(": holds a control character")
        assert len(reason.splitlines()) == 1


def test_place_of_a_control_character_is_named(rejects):
    provenance = {**DATA["provenance"], "versions": {"numpy": "2.0\n"}}
    assert "provenance.versions.numpy: holds a control" in rejects(changed("provenance", to=provenance))
    knobs = {"stop": ["fine", {"inner": "\n"}]}
    reason = rejects(changed("statement", "configurations", BAD, "knobs", to=knobs))
    assert f"statement.configurations[{BAD}].knobs.stop[1].inner: holds a control character" in reason


@pytest.mark.parametrize("path", [(), ("statement",), ("bootstrap",), ("provenance", "serving_keys")])
def test_control_characters_in_keys_are_refused_and_escaped(rejects, path):
    data = copy.deepcopy(DATA)
    target: Any = data
    for key in path:
        target = target[key]
    target["\ud800" + SPOOF] = 1
    reason = rejects(data)
    assert "\\ud800\\nother.json: consistent and unchanged; gate passed: holds a control character" in reason
    assert len(reason.splitlines()) == 1


def test_ids_with_line_breaks_are_escaped_in_messages(rejects):
    outcomes = replace(OUTCOMES, prompts=(*IDS[:79], "q" + SPOOF))
    forwards = outcomes.measures["forwards"].copy()
    forwards[:, 79] = 0
    data = json.loads(to_bytes(certify(replace(GRID, cost=OWN_COST), outcomes)))
    data["outcomes"] = pack(replace(outcomes, measures={**outcomes.measures, "forwards": forwards})).model_dump()
    reason = rejects(data)
    assert 'forwards is 0 for prompt "q\\nother.json' in reason
    assert len(reason.splitlines()) == 1


def test_own_warnings_cannot_be_removed_and_notes_are_kept(rejects):
    outcomes = replace(violations(400, {"cand": 6}), groups=("hard",) * 50 + ("easy",) * 350)
    grid = make_grid(["ref", "cand"], costs={"ref": 1.0, "cand": 2.0})
    data = json.loads(to_bytes(certify(grid, outcomes, notes=["a note"])))
    note, warning = data["warnings"]
    assert note == "a note"
    assert "hard" in warning
    assert rejects(data) is None
    data["warnings"] = [note]
    assert "is missing" in rejects(data)
    assert "warnings" in rejects(data)


@pytest.mark.parametrize("field", [field for field in DATA if field != "redline_certificate"])
def test_every_missing_top_level_field_is_refused(rejects, field):
    data = {key: value for key, value in DATA.items() if key != field}
    assert rejects(json.dumps(data, indent=1).encode() + b"\n")
    if field not in ("name", "digest", "provenance"):  # a new digest belongs to the new content
        assert rejects(data)


def test_unknown_field_is_refused_at_every_depth(rejects):
    for path in ((), ("statement",), ("configurations", 0), ("cost",), ("frontier",), ("outcomes",), ("groups", 0)):
        data = copy.deepcopy(DATA)
        target: Any = data
        for key in path:
            target = target[key]
        target["extra"] = 1
        assert "extra" in rejects(data)


MINOR = ".".join(np.__version__.split(".")[:2])


@pytest.mark.parametrize(
    ("recorded", "shares"),
    [
        (np.__version__, {1e-12: False, 0.001: True}),
        (f"{MINOR}.99", {1e-12: False, 0.001: True}),
        (f"{MINOR}9.0", {0.09: False, 0.11: True}),
        ("1.0.0", {0.09: False, 0.11: True}),
        (None, {0.09: False, 0.11: True}),
    ],
)
def test_intervals_are_exact_under_the_same_numpy_and_else_within_a_tenth_of_their_width(rejects, recorded, shares):
    rng = np.random.default_rng(3)
    outcomes = make_outcomes({"ref": [1] * 200, "cand": rng.random(200) > 0.02})
    grid = make_grid(["ref", "cand"], costs={"ref": 1.0, "cand": 2.0})
    provenance = Provenance(versions={"numpy": recorded} if recorded else {})
    data = json.loads(to_bytes(certify(grid, outcomes, provenance=provenance)))
    assert rejects(data) is None
    low, high = data["configurations"][1]["net_accuracy_interval"]
    assert low < high
    for share, refused in shares.items():
        data["configurations"][1]["net_accuracy_interval"] = [low + share * (high - low), high]
        assert bool(rejects(data)) is refused


def test_precision_of_weights_is_recorded_where_a_model_was_run_and_nowhere_else(rejects):
    kept = {"checkpoint": "c", "dtype": "float32", "weights": "int8", "shares": {"float32": 0.25, "int8": 0.75}}
    for weights in ([], [kept]):
        made = certify(GRID, OUTCOMES, provenance=Provenance.model_validate({"weights": weights}))
        data = json.loads(to_bytes(made))
        assert rejects(data) is None
        assert data["provenance"].get("weights", []) == weights
        assert ("weights" in data["provenance"]) == bool(weights)


def test_certificate_without_intervals_is_not_one_of_the_gate(rejects):
    assert "bootstrap.resamples: is missing" in rejects(to_bytes(certify(GRID, OUTCOMES, intervals=False)))


# -- Anything at all ----------------------------------------------------------------------------------------------

ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 2, 80, 2**31, 2**64, 10**400, 0.0, -0.0, 5e-324, 1e-300, 0.5, 1.0, 1e308, -1e308),
    *("", "\n", "\ud800", "a", "ref", "cand", "lower", "0" * 64, "u1:", "eJwDAAAAAAE=", "é" * 300),
    *([], {}, [[]], [0.0, 1.0], [1.0, 0.0], {"": ""}, {"a": 1}, {"n": 1}, {"a": "b"}, ["a"] * 80),
    json.loads("[" * 150 + "]" * 150),
    json.loads('{"a":' * 150 + "1" + "}" * 150),
]
PACKED: list[Any] = [
    *(
        [],
        {},
        1,
        "a",
        [1] * 80,
        IDS,
        IDS[::-1],
        ["a"] * 80,
        ["\ud800"] * 80,
        ["a"] * 79 + [""],
        ["b"] * 80,
        [None] * 80,
    ),
    *(["all"] * 80, IDS[:40], [f"p{number:03}" for number in range(80)]),
]


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path in JSON data, that of the whole left out."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [place for key, value in items for place in ((*path, key), *places(value, (*path, key)))]


def mutated(rng: random.Random) -> dict[str, Any]:
    """The certificate with something replaced, removed, doubled, swapped, added or repacked, up to three times."""
    data = copy.deepcopy(DATA)
    for _ in range(rng.choice([1, 1, 2, 3])):
        found = places(data)
        packed = [place for place in found if place[:1] == ("outcomes",)]
        path = rng.choice(packed if packed and rng.random() < 0.3 else found)
        target: Any = data
        for key in path[:-1]:
            target = target[key]
        key = path[-1]
        value = copy.deepcopy(target[key])
        match rng.randrange(7):
            case 0 if isinstance(target, list):
                target.insert(key, value)
            case 0 | 1:
                del target[key]
            case 2 if isinstance(value, dict):
                value[rng.choice(["a", "ref", "", "n", "\n"])] = rng.choice(ODD)
                target[key] = value
            case 2 | 3 if isinstance(value, int | float):
                target[key] = rng.choice([-value, value + 1, value * 2, bool(value), str(value)[:300]])
            case 4 if packed:
                kind = rng.choice(["", "u1:", "u2:", "u8:", "f8:"])
                raw = rng.choice(
                    [json.dumps(rng.choice(PACKED)).encode(), rng.randbytes(rng.choice([0, 1, 10, 80, 640]))]
                )
                target[key] = kind + base64.b64encode(zlib.compress(raw)).decode()
            case 5:
                other: Any = data
                for step in rng.choice(found):
                    other = other[step]
                target[key] = copy.deepcopy(other)
            case _:
                target[key] = copy.deepcopy(rng.choice(ODD))
    return data


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_mutated_data_verify_or_are_refused_line_by_line(rejects, seed):
    rng = random.Random(seed)
    for _ in range(150):
        data = mutated(rng)
        written = json.dumps(data, indent=1).encode() + b"\n"
        assert data == DATA or rejects(written)
        reason = rejects(data) or ""
        assert reason.count("made.certificate.json: ") == len(reason.splitlines())


@pytest.mark.parametrize("opening", [b"[", b'{"statement":', b'{"a":[', b'["', b"\xff", b"\x00", b"-", b"1e999,"])
def test_hostile_bytes_are_refused(rejects, opening):
    for count in (0, 1, 900, 100_000):
        assert rejects(opening * count)
        assert rejects(WRITTEN.replace(b'"number": 1', b'"number": ' + opening * count, 1))
