"""The gate serves with the engine: stored, resumed, shared, judged as recorded outcomes are."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from gate_runner import environment
from live_gate import CONFIGURATIONS, command, keys_of, run, write_checkpoint, write_live

from pytest_redline.certificate import to_bytes
from pytest_redline.errors import GridError, NothingCertifiableError, OutcomesError
from pytest_redline.gate import Live, certificate_of
from pytest_redline.grid import EngineSource, Grid
from pytest_redline.grid_file import load_grid
from pytest_redline.packing import unpack
from pytest_redline.progress import Progress
from pytest_redline.prompts import Prompts, read_calibration_prompts
from pytest_redline.sources import checkpoints
from pytest_redline.sources import engine as bridge
from pytest_redline.sources.checkpoints import hash_files
from pytest_redline.store import Generation, Store
from pytest_redline.verify import verify


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Live:
    return Live(tmp_path / "store" / "store.sqlite")


def rows_in(store: Live) -> int:
    with sqlite3.connect(store.store) as connection:
        try:
            return connection.execute("SELECT count(*) FROM generations").fetchone()[0]
        except sqlite3.OperationalError:  # the file is there, its tables are not yet
            return 0


def test_a_grid_is_served_and_certified(tmp_path: Path, store: Live) -> None:
    certificate = certificate_of(load_grid(write_live(tmp_path)), store)
    assert (certificate.n, certificate.m, certificate.reference) == (60, 2, "slow")
    assert certificate.row("slow").k == 0
    assert 0 < certificate.row("fast").k < 60
    assert rows_in(store) == 120
    assert certificate.sharing is not None
    assert certificate.sharing.forwards_run < certificate.sharing.forwards_charged
    outcomes = unpack(certificate.outcomes, ("slow", "fast"))
    assert certificate.sharing.forwards_charged == outcomes.measures["forwards"].sum()
    assert certificate.row("fast").cost == outcomes.measures["tokens"][1].sum() / outcomes.measures["forwards"][1].sum()
    assert list(certificate.statement.checkpoints) == ["checkpoint"]
    assert certificate.statement.grader == "math (version 1)"
    assert {group.name: group.n for group in certificate.groups} == {"even": 30, "odd": 30}
    knobs = {each.label: each.knobs for each in certificate.statement.configurations}
    assert knobs["fast"] == {
        "checkpoint": "checkpoint",
        "dtype": "float32",
        "weights": "float32",
        "batch_size": 256,
        "block_size": 4,
        "buffer_size": 4,
        "schedule": "threshold",
        "accept_threshold": 0.05,
        "semi_complete_threshold": 0.9,
        "add_block_threshold": 0.1,
        "max_new_tokens": 12,
        "temperature": 0.0,
        "stop_tokens": [],
        "stop_strings": [],
    }


PRECISIONS = ("float32", "bfloat16", "int8", "int4")


def test_a_grid_over_precisions_is_judged_and_says_what_it_ran(tmp_path: Path, store: Live) -> None:
    configurations = {name: {"buffer_size": 1, "weights": name} for name in PRECISIONS[1:]}
    path = write_live(tmp_path, configurations={"slow": {"buffer_size": 1}, **configurations})
    grid = load_grid(path)
    certificate = certificate_of(grid, store)
    assert certificate_of(grid, store) == certificate
    stated = {each.label: each.knobs["weights"] for each in certificate.statement.configurations}
    assert stated == {"slow": "float32", **{name: name for name in PRECISIONS[1:]}}
    assert {row.label: row.verdict for row in certificate.configurations}["slow"] == "reference"
    assert certificate.row("int8").k <= certificate.row("int4").k
    assert rows_in(store) == 60 * len(PRECISIONS)
    records = certificate.provenance.weights
    assert [(each.checkpoint, each.dtype, each.weights) for each in records] == [
        ("checkpoint", "float32", name) for name in PRECISIONS
    ]
    assert records[0].shares == {"float32": 1.0}
    for record in records[1:]:
        assert set(record.shares) == {"float32", record.weights}
        assert sum(record.shares.values()) == pytest.approx(1)


def test_models_are_told_apart_by_what_they_are_and_not_by_who_says_so(tmp_path: Path) -> None:
    def specs(section: dict[str, str], **configurations: dict[str, object]) -> list[tuple[str, str | None]]:
        engine = {"checkpoint": "checkpoint", "device": "cpu", "max_new_tokens": 12, **section}
        slow = {"slow": {"buffer_size": 1}}
        path = write_live(tmp_path, source={"engine": engine}, configurations={**slow, **configurations})
        grid = load_grid(path)
        assert isinstance(grid.source, EngineSource)
        assert grid.prompts is not None
        prompts = read_calibration_prompts(grid.prompts, "group", None)
        families = bridge._families(grid, grid.source, prompts, "cpu", {})
        keys = [key for family in families for row in family.keys for key in row]
        assert len(set(keys)) == len(keys)
        return [(family.spec.dtype, family.spec.weights) for family in families]

    fast = {"accept_threshold": 0.05}
    assert specs({}, fast=fast) == [("float32", "float32")]
    assert specs({}, fast={**fast, "weights": "float32"}) == [("float32", "float32")]
    assert specs({"weights": "int8"}, fast=fast) == [("float32", "int8")]
    assert specs({}, fast={**fast, "weights": "int8"}) == [("float32", "float32"), ("float32", "int8")]
    assert specs({"weights": "int4"}, fast={**fast, "weights": None}) == [("float32", "int4"), ("float32", "float32")]
    assert specs({"dtype": "bfloat16"}, fast={**fast, "dtype": "float32", "weights": "bfloat16"}) == [
        ("bfloat16", "bfloat16"),
        ("float32", "bfloat16"),
    ]


def test_what_is_stored_is_not_served_again_and_gives_the_same_certificate(
    tmp_path: Path, store: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = load_grid(write_live(tmp_path))
    first = certificate_of(grid, store)
    monkeypatch.setattr(bridge, "_generate", lambda *_: pytest.fail("something was served"))
    assert certificate_of(grid, store) == first


def test_a_new_candidate_is_served_alone_and_no_sharing_is_claimed(
    tmp_path: Path, store: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_live(tmp_path)
    certificate_of(load_grid(path), store)
    path.write_text(path.read_text().replace("  fast:", "  new: {accept_threshold: 0.5}\n  fast:"))
    asked: list[int] = []
    generate = bridge._generate

    def noted(family, missing, *rest):
        asked.extend(map(len, missing.values()))
        return generate(family, missing, *rest)

    monkeypatch.setattr(bridge, "_generate", noted)
    certificate = certificate_of(load_grid(path), store)
    assert asked == [1] * 60
    assert rows_in(store) == 180
    assert certificate.sharing is None
    assert b'"sharing"' not in to_bytes(certificate)


def test_a_checkpoint_that_changes_while_it_is_loaded_is_refused(
    tmp_path: Path, store: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = load_grid(write_live(tmp_path))
    load = bridge._load

    def swapped(*given):
        write_checkpoint(tmp_path / "checkpoint", seed=1)
        return load(*given)

    monkeypatch.setattr(bridge, "_load", swapped)
    with pytest.raises(OutcomesError, match="its files changed while they were loaded"):
        certificate_of(grid, store)
    assert rows_in(store) == 0


@pytest.mark.parametrize("change", ["checkpoint", "batch_size", "dtype"])
def test_the_statement_names_the_model_and_how_it_is_loaded(tmp_path: Path, store: Live, change: str) -> None:
    path = write_live(tmp_path)
    before = certificate_of(load_grid(path), store).statement
    if change == "checkpoint":
        weights = tmp_path / "checkpoint" / "config.json"
        weights.write_text(weights.read_text() + " ")
    else:
        setting = "batch_size: 7" if change == "batch_size" else "dtype: bfloat16"
        path.write_text(path.read_text().replace("device: cpu", f"device: cpu\n    {setting}"))
    assert certificate_of(load_grid(path), store).statement.hash != before.hash


def test_cuda_graphs_are_stated_and_need_a_cuda_device(tmp_path: Path, store: Live) -> None:
    path = write_live(tmp_path)
    path.write_text(path.read_text().replace("device: cpu", "device: cpu\n    cuda_graphs: true"))
    grid = load_grid(path)
    assert all(each.knobs["cuda_graphs"] is True for each in grid.configurations)
    with pytest.raises(OutcomesError, match="cuda_graphs needs a CUDA device, not cpu; leave it out"):
        certificate_of(grid, store)
    assert rows_in(store) == 0


@pytest.mark.parametrize("damage", ["garbage", "other table", "odd values", "folder"])
def test_a_store_that_is_damaged_is_one_clear_error(tmp_path: Path, store: Live, damage: str) -> None:
    grid = load_grid(write_live(tmp_path))
    certificate_of(grid, store)
    if damage == "garbage":
        store.store.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 64)
    elif damage == "folder":
        store = Live(tmp_path)
    else:
        with sqlite3.connect(store.store) as connection:
            if damage == "odd values":
                connection.execute("UPDATE generations SET tokens = 'many'")
            else:
                connection.execute("DROP TABLE generations")
                connection.execute("CREATE TABLE generations (key TEXT PRIMARY KEY)")
    with pytest.raises(OutcomesError) as error:
        certificate_of(grid, store)
    assert len(error.value.problems) == 1


@pytest.mark.parametrize("change", ["checkpoint", "knob", "weights", "batch_size", "prompt", "engine"])
def test_whatever_could_change_an_answer_changes_its_key(
    tmp_path: Path, store: Live, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_live(tmp_path)
    certificate_of(load_grid(path), store)
    before = rows_in(store)
    if change == "checkpoint":
        write_checkpoint(tmp_path / "checkpoint", seed=1)
    elif change == "knob":
        path.write_text(path.read_text().replace("max_new_tokens: 12", "max_new_tokens: 11"))
    elif change == "weights":
        path.write_text(path.read_text().replace("device: cpu", "device: cpu\n    weights: int4"))
    elif change == "batch_size":
        path.write_text(path.read_text().replace("device: cpu", "device: cpu\n    batch_size: 7"))
    elif change == "prompt":
        prompts = tmp_path / "prompts.jsonl"
        prompts.write_text(prompts.read_text().replace('"prompt": "0', '"prompt": "x0'))
    else:
        monkeypatch.setattr(bridge, "hash_files", lambda folder, pattern: f"another {hash_files(folder, pattern)}")
        monkeypatch.setattr(checkpoints, "hash_files", bridge.hash_files)
    try:
        certificate_of(load_grid(path), store)
    except NothingCertifiableError:
        assert change in ("checkpoint", "weights")  # another model is right on other prompts
    assert rows_in(store) > before


def test_a_sample_is_a_seeded_part_of_the_prompts_and_of_the_statement(tmp_path: Path, store: Live) -> None:
    path = write_live(tmp_path)

    def sampled(seed: int) -> tuple[tuple[str, ...], str]:
        text = path.read_text().replace(
            "file: prompts.jsonl", f"file: prompts.jsonl\n  sample: {{n: 40, seed: {seed}}}"
        )
        other = path.with_name("s.redline.yaml")
        other.write_text(text)
        certificate = certificate_of(load_grid(other), store)
        assert certificate.statement.prompts.sample == {"n": 40, "seed": seed}
        return unpack(certificate.outcomes, ("slow", "fast")).prompts, certificate.statement.hash

    assert sampled(1) == sampled(1)
    assert sampled(1)[0] != sampled(2)[0]
    assert sampled(1)[1] != sampled(2)[1]
    assert len(sampled(1)[0]) == 40


def test_too_few_prompts_are_refused_before_anything_is_served(
    tmp_path: Path, store: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_live(tmp_path)
    path.write_text(path.read_text().replace("file: prompts.jsonl", "file: prompts.jsonl\n  sample: {n: 13, seed: 0}"))
    monkeypatch.setattr(bridge, "serve", lambda *_: pytest.fail("something was served"))
    with pytest.raises(NothingCertifiableError, match="n=13 and m=2"):
        certificate_of(load_grid(path), store)


class Told(Progress):
    """What a run tells while it serves."""

    def __init__(self) -> None:
        self.served: list[Sequence[str]] = []
        self.known: list[tuple[str, int, bool]] = []
        self.run = [0]

    def serving(self, labels: Sequence[str]) -> None:
        self.served.append(labels)

    def generation(self, label: str, prompt: int, right: bool, generation: Generation, stored: bool) -> None:
        self.known.append((label, prompt, stored))

    def forwards(self, run: int) -> None:
        self.run.append(run)


def told_by_serving(grid: Grid, prompts: Prompts, path: Path) -> tuple[Told, bridge.Served]:
    told = Told()
    with Store(path) as store:
        return told, bridge.serve(grid, prompts, store, None, True, told)


def test_what_is_told_while_serving_tells_the_stored_from_the_served(tmp_path: Path) -> None:
    grid = load_grid(write_live(tmp_path))
    assert grid.prompts is not None
    prompts = read_calibration_prompts(grid.prompts, "group", None)
    path = tmp_path / "store.sqlite"
    alone = load_grid(write_live(tmp_path, name="s.redline.yaml", configurations={
        "slow": CONFIGURATIONS["slow"], "another": {"accept_threshold": 0.5}
    }))  # fmt: skip
    told_by_serving(alone, prompts.only(set(prompts.ids[:20])), path)

    told, _ = told_by_serving(grid, prompts, path)

    assert told.served == [["slow", "fast"]]
    assert sorted(told.known) == sorted(
        (label, prompt, label == "slow" and prompt < 20) for label in ("slow", "fast") for prompt in range(60)
    )
    again, _ = told_by_serving(grid, prompts, path)
    assert (again.served, again.run) == ([], [0])
    assert sorted(again.known) == sorted((label, prompt, True) for label, prompt, _ in told.known)


def test_models_are_told_one_after_the_other_and_their_forwards_together(tmp_path: Path) -> None:
    several = {**CONFIGURATIONS, "rounded": {"accept_threshold": 0.05, "dtype": "bfloat16"}}
    grid = load_grid(write_live(tmp_path, configurations=several))
    assert grid.prompts is not None
    prompts = read_calibration_prompts(grid.prompts, "group", None)

    told, served = told_by_serving(grid, prompts, tmp_path / "store.sqlite")

    assert told.served == [["slow", "fast"], ["rounded"]]
    assert told.run == sorted(told.run)
    assert told.run[-1] == served.forwards_run


def test_judging_what_is_known_serves_nothing(tmp_path: Path, store: Live) -> None:
    grid = load_grid(write_live(tmp_path))
    known = Live(store.store, generate=False)
    with pytest.raises(OutcomesError, match="120 of 120 generations were never served"):
        certificate_of(grid, known)
    first = certificate_of(grid, store)
    assert certificate_of(grid, known) == first


def test_a_lost_answer_counts_against_the_candidate_and_many_are_an_error(tmp_path: Path, store: Live) -> None:
    grid = load_grid(write_live(tmp_path, n=120))
    before = certificate_of(grid, store)
    outcomes = unpack(before.outcomes, ("slow", "fast"))

    def lose(label: int, prompts: list[int]) -> None:
        keys = keys_of(grid, label)
        with sqlite3.connect(store.store) as connection:
            for prompt in prompts:
                connection.execute(
                    "UPDATE generations SET finish_reason = 'error', text = '' WHERE key = ?", (keys[prompt],)
                )

    right = [index for index in range(120) if outcomes.correct[:, index].all()]
    wrong = [index for index in range(120) if not outcomes.correct[:, index].any()]
    lose(1, right[:1])
    after = certificate_of(grid, store)
    assert after.row("fast").k == before.row("fast").k + 1
    assert any("counted as wrong" in warning for warning in after.warnings)
    if wrong:
        lose(0, wrong[:1])
        assert certificate_of(grid, store).row("fast").k == before.row("fast").k + 2
    lose(1, right[:3])
    with pytest.raises(OutcomesError, match=r"fast: no usable answer on 3 of 120 prompts"):
        certificate_of(grid, store)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("grade: math", "grade: maths"), "grade: 'maths' is no grader; did you mean math?"),
        (("grade: math\n", ""), "grade: the engine's answers need a grader"),
        (("max_new_tokens: 12", "max_new_tokens: 12\n    bufer_size: 2"), "source.engine.bufer_size: unknown knob"),
        (("buffer_size: 1", "accept_thresold: 1"), "configurations.slow.accept_thresold: unknown knob; did you mean"),
        (("buffer_size: 1", "buffer_size: 0"), "configurations.slow.buffer_size: 0 is not allowed"),
        (
            ("buffer_size: 1", "buffer_size: 1\n    semi_complete_threshold: 0.5"),
            "semi_complete_threshold: nothing reads it while buffer_size is 1",
        ),
        (("accept_threshold: 0.05", "accept_threshold: 0.9\n    buffer_size: 1"), "has the same knobs as 'slow'"),
        (
            ("accept_threshold: 0.05", "accept_threshold: 0.9\n    buffer_size: 1\n    dtype: float32"),
            "has the same knobs as 'slow'",
        ),
        (
            ("accept_threshold: 0.05", "accept_threshold: 0.9\n    buffer_size: 1\n    block_size: 4"),
            "has the same knobs",
        ),
        (("device: cpu", "device: cpu\n    top_k: 5"), "11 source.engine.top_k: no configuration reads it; remove it"),
        (("accept_threshold: 0.05", "accept_threshold: 0.05\n    dtype: float16"), "configurations.fast.dtype"),
        (("accept_threshold: 0.05", "accept_threshold: 0.05\n    log: x.csv"), "the engine reads no log"),
        (
            ("accept_threshold: 0.05", "weights: int2"),
            "g.redline.yaml:18 configurations.fast.weights: 'int2' is not allowed; it must be one of float32, bfloat16",
        ),
        (
            ("device: cpu", "device: cpu\n    weights: int2"),
            "g.redline.yaml:11 source.engine.weights: found 'int2'; 'float32', 'bfloat16', 'int8' or 'int4' is allowed",
        ),
        (("accept_threshold: 0.05", "dtype: float16"), "configurations.fast.dtype: 'float16' is not allowed"),
        (("accept_threshold: 0.05", "checkpoint: 7"), "configurations.fast.checkpoint: 7 is not allowed"),
        (
            ("device: cpu", "device: cpu\n    dtype: bfloat16\n    weights: float32"),
            "source.engine.weights: float32 is wider than dtype bfloat16",
        ),
        (
            ("accept_threshold: 0.05", "weights: float32\n    buffer_size: 1"),
            "has the same knobs as 'slow'",
        ),
        (("grade: math", "grade: math\ncost: tokens_per_second"), "the engine does not measure seconds"),
        (("source:\n", "source:\n  outcomes: x.csv\n"), "found 2 kinds; name one of outcomes, engine"),
    ],
)
def test_mistakes_of_a_live_grid_are_found_when_it_is_read(
    tmp_path: Path, change: tuple[str, str], problem: str
) -> None:
    path = write_live(tmp_path)
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change, 1))
    with pytest.raises(GridError) as error:
        load_grid(path)
    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"id": 1, "prompt": "a", "answer": "1"}, {"id": 1, "prompt": "b", "answer": "1"}], "stands on line 1 too"),
        ([{"id": 1, "prompt": "a", "answer": "1"}, {"id": 2, "prompt": "a", "answer": "1"}], "has the text of"),
        ([{"id": 1, "prompt": "a"}], "has no answer"),
        ([{"id": 1, "answer": "1"}], "has no prompt"),
        ([{"prompt": "a", "answer": "1"}], "no id"),
        ([{"id": n, "prompt": f"a{n}", "answer": "ten"} for n in range(60)], "expected answer 'ten' is not a number"),
    ],
)
def test_prompts_that_cannot_be_used_are_named(
    tmp_path: Path, store: Live, rows: list[dict[str, object]], problem: str
) -> None:
    path = write_live(tmp_path)
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(OutcomesError) as error:
        certificate_of(load_grid(path), store)
    assert problem in str(error.value)


def test_a_checkpoint_that_is_not_there_is_named(tmp_path: Path, store: Live) -> None:
    path = write_live(tmp_path)
    path.write_text(path.read_text().replace("checkpoint: checkpoint", "checkpoint: nothing"))
    with pytest.raises(OutcomesError, match="checkpoint 'nothing': no directory"):
        certificate_of(load_grid(path), store)


# -- through the real command


def test_the_command_serves_and_a_repeated_one_writes_the_same_certificate(tmp_path: Path) -> None:
    write_live(tmp_path, serving="slow")
    first = run(tmp_path, "--redline-report=out")
    assert first.returncode == 0, first.stdout + first.stderr
    content = (tmp_path / "out" / "live.certificate.json").read_bytes()
    assert (tmp_path / ".redline" / "store.sqlite").exists()
    verify(tmp_path / "out" / "live.certificate.json")
    workers = run(tmp_path, "--redline-report=out", "-n", "2")
    assert workers.returncode == 0, workers.stdout + workers.stderr
    assert (tmp_path / "out" / "live.certificate.json").read_bytes() == content
    listed = run(tmp_path, "--collect-only", "-q", "--redline-store=elsewhere/s.sqlite")
    assert "g.redline.yaml::fast" in listed.stdout
    assert not (tmp_path / "elsewhere").exists()


def test_deselected_live_candidates_are_not_served_and_not_green(tmp_path: Path) -> None:
    write_live(tmp_path)
    result = run(tmp_path, "-k", "nothing")
    assert result.returncode == 1
    assert "generations were never served; run its tests" in result.stdout


def test_a_run_that_is_killed_goes_on_where_it_stopped(tmp_path: Path) -> None:
    write_live(
        tmp_path,
        n=200,
        serving="slow",
        source={"engine": {"checkpoint": "checkpoint", "device": "cpu", "max_new_tokens": 12, "batch_size": 2}},
    )
    store = Live(tmp_path / ".redline" / "store.sqlite")
    process = subprocess.Popen(
        command(), cwd=tmp_path, env=environment(OMP_NUM_THREADS="1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(sqlite3.OperationalError):  # the file is there before its tables
            if store.store.exists() and rows_in(store) > 0:
                break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    kept = rows_in(store)
    assert 0 < kept < 400, "the run was to be killed in the middle"
    again = run(tmp_path, "--redline-report=out")
    assert again.returncode == 0, again.stdout + again.stderr
    assert rows_in(store) == 400
    certificate = verify(tmp_path / "out" / "live.certificate.json")
    alone = certificate_of(load_grid(tmp_path / "g.redline.yaml"), Live(tmp_path / "other.sqlite"))
    assert certificate.outcomes == alone.outcomes


def test_a_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    digest = checkpoints._read

    def noted(path: Path) -> bytes:
        read.append(path.name)
        return digest(path)

    monkeypatch.setattr(checkpoints, "_read", noted)
    weights = tmp_path / "weights"
    weights.write_bytes(b"one")
    new = hash_files(tmp_path, "*")
    assert (hash_files(tmp_path, "*"), read) == (
        new,
        ["weights"] * 2,
    )  # another change could leave its times as they are
    now = time.time()
    monkeypatch.setattr(checkpoints.time, "time", lambda: now + 10)
    assert (hash_files(tmp_path, "*"), hash_files(tmp_path, "*"), len(read)) == (new, new, 3)
    before = weights.stat()
    time.sleep(0.05)
    weights.write_bytes(b"two")
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert hash_files(tmp_path, "*") != new
    assert len(read) == 4


@pytest.mark.parametrize(("folder", "ignored"), [(".redline", True), ("kept", False)])
def test_git_is_told_to_leave_the_folder_of_the_gate_out_and_no_other(
    tmp_path: Path, folder: str, ignored: bool
) -> None:
    certificate_of(load_grid(write_live(tmp_path)), Live(tmp_path / folder / "store.sqlite"))
    assert (tmp_path / folder / ".gitignore").exists() is ignored
