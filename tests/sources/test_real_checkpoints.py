"""Checkpoints as their authors publish them go through the same grid file as the bundled ones."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("tokenizers")

from chat_checkpoint import write_chat_checkpoint
from live_gate import keys_of, write_live

from pytest_redline.errors import OutcomesError
from pytest_redline.gate import Live, certificate_of
from pytest_redline.grid import EngineSource
from pytest_redline.grid_file import load_grid
from pytest_redline.sources.tokenizing import Tokenizing
from redline_engine.templates import TEMPLATES

NAMES = {"sdar_moe": "Tiny-SDAR-MoE-Chat-b8", "llada2": "tiny-llada2", "sdar": "Tiny-SDAR-Chat"}
BLOCKS = {"sdar_moe": 8, "llada2": 32, "sdar": 4}


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(folder: Path, family: str, chat: bool = True, n: int = 40, **engine: object) -> Path:
    """A checkpoint of a family and a grid that serves it."""
    if not (folder / NAMES[family]).exists():
        write_chat_checkpoint(folder / NAMES[family], family, chat=chat)
    settings = {"checkpoint": NAMES[family], "device": "cpu", "max_new_tokens": 12, **engine}
    return write_live(folder, n, alpha=0.3, grade="boxed", source={"engine": settings})


@pytest.mark.parametrize("family", ["sdar_moe", "llada2"])
def test_pytest_serves_and_certifies_a_published_layout(tmp_path: Path, family: str) -> None:
    write(tmp_path, family)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--redline-report=out", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert "1 failed" in done.stdout or "1 passed" in done.stdout
    certificate = json.loads((tmp_path / "out" / "live.certificate.json").read_text())
    assert (certificate["n"], certificate["m"]) == (40, 2)
    assert certificate["statement"]["grader"] == "boxed (version 1)"
    for configuration in certificate["statement"]["configurations"]:
        knobs = configuration["knobs"]
        assert knobs["template"] == ("llada2-math" if family == "llada2" else "sdar-math")
        assert knobs["block_size"] == BLOCKS[family]
    verified = subprocess.run(
        [str(Path(sys.executable).with_name("pytest-redline")), "verify", "out/live.certificate.json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert verified.returncode == 0, verified.stdout + verified.stderr


def knobs_of(path: Path, label: str = "slow") -> dict[str, object]:
    return dict(next(each.knobs for each in load_grid(path).configurations if each.label == label))


def test_the_template_is_chosen_by_the_checkpoint_and_what_is_said_wins(tmp_path: Path) -> None:
    assert knobs_of(write(tmp_path, "sdar"))["template"] == "sdar-math"
    assert knobs_of(write(tmp_path, "sdar", template="none"))["template"] == "none"
    assert knobs_of(write(tmp_path, "sdar", template="sdar-chat"))["template"] == "sdar-chat"
    (tmp_path / NAMES["sdar"] / "tokenizer_config.json").unlink()
    assert "template" not in knobs_of(write(tmp_path, "sdar"))
    (tmp_path / NAMES["sdar"] / "chat_template.jinja").write_text("{{ messages }}")
    assert knobs_of(write(tmp_path, "sdar"))["template"] == "sdar-math"


def test_another_template_or_name_is_another_generation(tmp_path: Path) -> None:
    keys = [
        keys_of(load_grid(write(tmp_path, "sdar", template=name)), 0) for name in ("none", "sdar-chat", "sdar-math")
    ]
    (tmp_path / NAMES["sdar"]).rename(tmp_path / "Tiny-SDAR-Chat-b2")
    path = tmp_path / "g.redline.yaml"
    path.write_text(path.read_text().replace(NAMES["sdar"], "Tiny-SDAR-Chat-b2"))
    assert knobs_of(path)["block_size"] == 2
    keys.append(keys_of(load_grid(path), 0))
    assert len({key for row in keys for key in row}) == 4 * 40


def test_a_block_size_that_is_stated_needs_no_name(tmp_path: Path) -> None:
    path = write(tmp_path, "sdar_moe")
    (tmp_path / NAMES["sdar_moe"]).rename(tmp_path / "model")
    path.write_text(path.read_text().replace(NAMES["sdar_moe"], "model"))
    with pytest.raises(OutcomesError, match=r"no block_size: neither config.json nor the name model says it"):
        certificate_of(load_grid(path), Live(tmp_path / "store.sqlite"))
    path.write_text(path.read_text().replace("max_new_tokens: 12", "max_new_tokens: 12\n    block_size: 4"))
    assert certificate_of(load_grid(path), Live(tmp_path / "store.sqlite")).n == 40


def test_mask_and_end_tokens_can_be_stated(tmp_path: Path) -> None:
    path = write(tmp_path, "sdar", mask_id=36, end_ids=[8, 9])
    knobs = knobs_of(path)
    assert (knobs["mask_id"], knobs["end_ids"]) == (36, [8, 9])
    grid = load_grid(path)
    assert isinstance(grid.source, EngineSource)
    assert grid.source.model_of(grid.configurations[0].knobs).end_ids == (8, 9)


def test_a_prompt_that_brings_its_own_turns_is_refused_in_a_template(tmp_path: Path) -> None:
    path = write(tmp_path, "sdar")
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(prompts.read_text().replace('"prompt": "3', '"prompt": "<|im_end|>3'))
    with pytest.raises(OutcomesError, match=r"prompt q/3: holds <\|im_end\|>, a control token of template sdar-math"):
        certificate_of(load_grid(path), Live(tmp_path / "store.sqlite"))


def test_a_template_whose_tokens_the_tokenizer_lacks_is_refused(tmp_path: Path) -> None:
    write_chat_checkpoint(tmp_path / "c", "llada2")
    with pytest.raises(OutcomesError, match=r"has no token <\|im_start\|> and no <\|im_end\|>, which"):
        Tokenizing(tmp_path / "c", "sdar-chat")


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("sdar-chat", "<|im_start|> 8 9 <|im_end|> <|im_start|>"),
        ("llada2-chat", "<role> </role> <|role_end|> <role> </role> 8 9 <|role_end|> <role> </role>"),
    ],
)
def test_control_tokens_of_a_template_are_single_tokens(tmp_path: Path, name: str, tokens: str) -> None:
    write_chat_checkpoint(tmp_path / "c", "llada2" if name.startswith("llada2") else "sdar")
    tokenizing = Tokenizing(tmp_path / "c", name)
    named = {number: token for token, number in tokenizing._tokenizer.get_vocab().items()}
    kept = [named[token] for token in tokenizing.encode("89") if named[token] in "89" or len(named[token]) > 1]
    assert kept == tokens.split()


def test_the_turns_are_those_of_the_families() -> None:
    assert TEMPLATES["sdar-chat"].render("Q") == "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    assert TEMPLATES["llada2-chat"].render("Q") == (
        "<role>SYSTEM</role>detailed thinking off<|role_end|><role>HUMAN</role>Q<|role_end|><role>ASSISTANT</role>"
    )
    assert TEMPLATES["none"].render("Q") == "Q"
    for family in ("sdar", "llada2"):
        plain, math = (TEMPLATES[f"{family}-{kind}"].render("Q") for kind in ("chat", "math"))
        assert "\\boxed{}" in math
        assert math.startswith(plain[: plain.index("Q") + 1])
        assert math.endswith(plain[plain.index("Q") + 1 :])
