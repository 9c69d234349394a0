"""``pytest-redline engine inspect``: what would be loaded, in words and as JSON, from headers alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

sys.path.insert(0, str(Path(__file__).parent / "sources"))
from chat_checkpoint import write_chat_checkpoint  # noqa: E402

from pytest_redline.cli import main  # noqa: E402
from redline_engine.config import Dtype, ModelSpec  # noqa: E402
from redline_engine.models.checkpoint import describe  # noqa: E402
from redline_engine.models.experts import GroupedLinear  # noqa: E402
from redline_engine.models.memory import kept_network  # noqa: E402
from redline_engine.models.network import Network  # noqa: E402
from redline_engine.models.reading import TensorFiles  # noqa: E402


@pytest.fixture(autouse=True)
def _no_weight_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(TensorFiles, "reader", lambda *_: pytest.fail("a weight was read"))


@pytest.mark.parametrize("family", ["sdar", "sdar_moe", "llada2"])
def test_a_checkpoint_is_described_within_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], family: str
) -> None:
    name = {"sdar": "Tiny-SDAR-Chat", "sdar_moe": "Tiny-SDAR-MoE-b8", "llada2": "tiny-llada2"}[family]
    write_chat_checkpoint(tmp_path / name, family)
    assert main(["engine", "inspect", name, "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    rows = dict(line.split(maxsplit=1) for line in text.splitlines() if len(line.split(maxsplit=1)) == 2)
    assert rows["family"] == family
    assert rows["template"].startswith("llada2-math (" if family == "llada2" else "sdar-math (")
    block = {"sdar": "4 (published for names such as", "sdar_moe": "8 (name Tiny-SDAR-MoE-b8)"}
    assert f"block size                 {block.get(family, '32 (published for llada2)')}" in text
    assert ("experts" in rows) == (family != "sdar")
    if family == "llada2":
        assert rows["experts"].startswith("8 in 4 groups of width 16, 2 per token, a shared one")
        assert "1 layer without" in text
        assert "(<|mask|> of the tokenizer)" in rows["mask"]
        assert "(config.json and <|role_end|>)" in rows["ends"]


def test_more_tokens_than_the_model_has_positions_for_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_chat_checkpoint(tmp_path / "Tiny-SDAR-b4", "sdar")
    arguments = ["engine", "inspect", "Tiny-SDAR-b4", "--device", "cpu", "--prompt-tokens", "400", "--knob"]
    assert main([*arguments, "max_new_tokens=112"]) == 0
    assert "positions" not in capsys.readouterr().err
    assert main([*arguments, "max_new_tokens=113"]) == 1
    out, error = capsys.readouterr()
    assert (
        "400: its 400 tokens and max_new_tokens 113 need 516 positions; the model has 512; lower --prompt-tokens or"
        in error
    )
    assert "fits, but the model does NOT take such requests" in " ".join(out.split())
    assert main(["engine", "inspect", "Tiny-SDAR-b4", "--device", "cpu", "--knob", "max_new_tokens=500"]) == 0
    assert "prompts of 12 tokens, 500 new" in capsys.readouterr().out, "not said, they are as long as there is room for"


@pytest.mark.parametrize(
    ("family", "arguments", "problem"),
    [
        ("sdar", [], "tokenizer.json: has no token <|im_start|> and no <|im_end|>, which template sdar-math needs"),
        (
            "llada2",
            ["--template", "sdar-math"],
            "has no token <|im_start|> and no <|im_end|>, which template sdar-math",
        ),
        ("sdar", ["--template", "none", "--knob", "stop_tokens=[999]"], "stop_tokens: the model cannot propose [999]"),
    ],
)
def test_what_the_gate_would_refuse_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], family: str, arguments: list[str], problem: str
) -> None:
    write_chat_checkpoint(tmp_path / "model-b4", family)
    if family == "sdar" and not arguments:
        path = tmp_path / "model-b4" / "tokenizer.json"
        path.write_text(path.read_text().replace("<|im_", "<|in_"))
    assert main(["engine", "inspect", "model-b4", "--device", "cpu", *arguments]) == 1
    out, error = capsys.readouterr()
    assert problem in error
    assert len(error.splitlines()) == 1
    assert out
    assert main(["engine", "inspect", "model-b4", "--device", "cpu", *arguments, "--json"]) == 1
    assert any(problem in each for each in json.loads(capsys.readouterr().out)["problems"])


def test_a_tokenizer_that_cannot_be_read_fails_whatever_is_stated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_chat_checkpoint(tmp_path / "Tiny-SDAR-b4", "sdar")
    (tmp_path / "Tiny-SDAR-b4" / "tokenizer.json").write_text("{}")
    arguments = ["engine", "inspect", "Tiny-SDAR-b4", "--device", "cpu", "--mask-id", "39", "--template", "none"]
    assert main(arguments) == 1
    out, error = capsys.readouterr()
    assert error.startswith("Tiny-SDAR-b4/tokenizer.json: cannot be read (")
    assert "NONE that the gate can use: prompts cannot be read" in " ".join(out.split())


def test_end_tokens_are_stated_as_in_a_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_chat_checkpoint(tmp_path / "Tiny-SDAR-b4", "sdar")
    arguments = ["engine", "inspect", "Tiny-SDAR-b4", "--device", "cpu"]
    assert json_of(capsys, [*arguments, "--end-ids", "8,9"])["ends"] == {"value": [8, 9], "from": "stated"}
    assert main([*arguments, "--end-ids", "8,999"]) == 1
    assert "end tokens [999] (stated) are not among" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*arguments, "--end-ids", "x"])


def test_json_holds_the_same_and_knobs_are_read_as_in_a_grid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_chat_checkpoint(tmp_path / "model", "sdar_moe")
    arguments = ["engine", "inspect", "model", "--json", "--device", "cpu", "--weights", "int8", "--batch-size", "3"]
    assert main([*arguments, "--knob", "block_size=16", "--knob", "accept_threshold=0.8"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["block_size"] == {"value": 16, "from": "stated"}
    assert found["knobs"]["accept_threshold"] == 0.8
    assert found["loaded"] == {"dtype": "float32", "weights": "int8", "device": "cpu", "cuda_graphs": False}
    assert found["memory"]["page"] == 16 * found["memory"]["position"] == 16 * 2 * 2 * 16 * 4
    assert found["memory"]["cache"] == 2 * 3 * (512 + 2 * 4 * 16) * found["memory"]["position"]
    assert found["network"]["experts"]["count"] == 8
    assert found["files"]["types"] == {"F32": found["files"]["bytes"]}
    assert main([*arguments, "--knob", "block_size=16"]) == 0
    smaller = json.loads(capsys.readouterr().out)
    assert smaller["memory"]["weights"] == found["memory"]["weights"] < found["files"]["bytes"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["gone"], "checkpoint 'gone': no directory gone"),
        (["model"], "no block_size: neither config.json nor the name model says it"),
        (["model", "--knob", "block_size=0"], "block_size: 0 is not allowed"),
        (["model", "--knob", "blok_size=4"], "blok_size: unknown knob; did you mean block_size?"),
        (["model", "--knob", "x"], "--knob x: found no =; write NAME=VALUE"),
        (["model", "--batch-size", "0"], "--batch-size 0: at least 1 is needed"),
        (
            ["model", "--knob", "block_size=4", "--template", "chatml"],
            "template: 'chatml' is not allowed; it must be one",
        ),
        (["model", "--knob", "block_size=4", "--mask-id", "999"], "mask token 999 (stated) is not one of 40 ids"),
        (["empty"], "config.json: cannot be read"),
        (["m" * 5000], "no directory mmm"),
        (["model", "--knob", "block_size=4", "--device", "tpx"], "device tpx: "),
        (
            ["model", "--knob", "block_size=4", "--device", "cpu", "--cuda-graphs"],
            "model: cuda_graphs needs a CUDA device, not cpu; leave it out",
        ),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    write_chat_checkpoint(tmp_path / "model", "sdar")
    (tmp_path / "empty").mkdir()
    assert main(["engine", "inspect", *arguments]) == 1
    out, error = capsys.readouterr()
    assert problem in error
    assert len(error.splitlines()) == 1
    assert out == ""


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_without_a_tokenizer_the_gate_cannot_serve_whatever_the_mask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    write_chat_checkpoint(tmp_path / "Tiny-SDAR-b4", "sdar")
    said = [
        "engine",
        "inspect",
        "Tiny-SDAR-b4",
        "--device",
        "cpu",
        "--prompt-tokens",
        "9",
        "--mask-id",
        "39",
        *arguments,
    ]
    assert main(said) == 0
    capsys.readouterr()
    (tmp_path / "Tiny-SDAR-b4" / "tokenizer.json").unlink()
    assert main(said) == 1
    out, error = capsys.readouterr()
    missing = (
        "Tiny-SDAR-b4/tokenizer.json: no such file, so prompts and replies cannot be read; "
        "download it into this directory"
    )
    assert error.splitlines() == [missing]
    if arguments:
        assert json.loads(out)["tokenizer"] is False
    else:
        assert "NONE that the gate can use: prompts cannot be read" in " ".join(out.split())


def test_what_does_not_fit_is_said_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_chat_checkpoint(tmp_path / "Tiny-SDAR-Chat", "sdar")
    monkeypatch.setattr("redline_engine.models.memory.free_memory", lambda device: 2000)
    assert main(["engine", "inspect", "Tiny-SDAR-Chat", "--device", "cpu"]) == 1
    assert "of 2.0 KiB free; does NOT fit" in capsys.readouterr().out


@pytest.mark.parametrize("family", ["sdar", "sdar_moe", "llada2"])
def test_cuda_graphs_are_planned_and_refused_as_a_load_refuses_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    write_chat_checkpoint(tmp_path / "model-b4", family)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # what is planned is another machine's
    arguments = ["engine", "inspect", "model-b4", "--device", "cuda", "--prompt-tokens", "9"]
    plain, recorded = (json_of(capsys, [*arguments, *more]) for more in ([], ["--cuda-graphs"]))
    assert (plain["loaded"]["cuda_graphs"], recorded["loaded"]["cuda_graphs"]) == (False, True)
    assert recorded["memory"]["working"] > plain["memory"]["working"]
    assert main([*arguments, "--cuda-graphs"]) == 0
    assert "on cuda\n                           small batches recorded as CUDA graphs\n" in capsys.readouterr().out
    assert main([*arguments, "--cuda-graphs", "--weights", "int8"]) == (0 if family == "sdar" else 1)
    error = capsys.readouterr().err
    assert ("model-b4: cuda_graphs cannot be used: its experts are multiplied one by one" in error) == bool(error)


def json_of(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("dtype", get_args(Dtype))
@pytest.mark.parametrize("family", ["sdar_moe", "llada2"])
def test_experts_are_known_to_be_multiplied_one_by_one_before_they_are_loaded(
    tmp_path: Path, family: str, dtype: Dtype
) -> None:
    write_chat_checkpoint(tmp_path / "model-b4", family)
    spec = ModelSpec(str(tmp_path / "model-b4"), dtype, "cpu")
    described = describe(spec).described
    loaded = Network(described.shape).to(getattr(torch, dtype))
    planned, found = (
        [each for each in network.modules() if isinstance(each, GroupedLinear)]
        for network in (kept_network(described, spec), loaded)
    )
    assert [each.is_grouped_on("cpu") for each in planned] == [each.is_grouped for each in found] != []
