"""How the bundled checkpoints are made: problems, splits, batches, a toy training run; and what ships solves some."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2]))  # the trainer is no part of what is installed

from engine.train.problems import LARGEST, distinct, make_problem, problems, read_result

CHECKPOINTS = Path(__file__).parents[2] / "fixtures" / "checkpoints"
EXAMPLE = (
    "Jan buys 3 apples for 7 coins each, 9 pens for 3 coins each and 8 stones for 5 coins each. "
    "How many coins does Jan pay?",
    "That is 3*7=21. First 9*3=27. That is 8*5=40. So 21+27=48. So 48+40=88. #### 88",
)
POOL = CHECKPOINTS.parent / "prompts" / "arithmetic.jsonl"


def test_a_problem_depends_on_seed_and_number_alone():
    assert [make_problem(3, number) for number in range(50)] == [make_problem(3, number) for number in range(50)]
    assert make_problem(3, 0) != make_problem(4, 0)
    problem = make_problem("example", 0)
    assert (problem.prompt, problem.answer) == EXAMPLE, (
        "the generator changed: the shipped checkpoints are of another one"
    )


def test_every_equation_is_true_and_the_result_is_the_last():
    for number in range(2000):
        problem = make_problem(5, number)
        equations = re.findall(r"(\d+)([-+*/])(\d+)=(\d+)", problem.answer)
        assert equations, problem
        for left, sign, right, value in equations:
            exact = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__truediv__}[sign]
            assert exact(int(left), int(right)) == int(value) <= LARGEST
        assert problem.result == int(equations[-1][3]) == read_result(problem.answer)


def test_no_prompt_is_in_two_splits():
    found = {split: distinct(split, split, 2000) for split in ("train", "pool", "test")}
    for field in ("key", "prompt"):
        sets = [{getattr(problem, field) for problem in found[split]} for split in found]
        assert sum(map(len, sets)) == len(set.union(*sets))


def test_the_pool_holds_thousands_of_distinct_held_out_prompts():
    lines = [json.loads(line) for line in POOL.read_text(encoding="utf-8").splitlines()]
    assert len(lines) >= 4000
    assert len({line["id"] for line in lines}) == len({line["prompt"] for line in lines}) == len(lines)
    assert {line["group"] for line in lines} == {"easy", "hard"}
    trained = {problem.prompt for problem in islice(problems(1, "train"), 20000)}
    assert trained.isdisjoint(line["prompt"] for line in lines)


@pytest.mark.parametrize(
    ("text", "result"),
    [(" 1+2=3. #### 3", 3), ("#### 4 #### 5", 5), ("#### ", None), ("3", None), ("#### 3.5", None), ("#### -3", None)],
)
def test_the_result_stands_behind_the_last_marker(text, result):
    assert read_result(text) == result


torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")

from engine.train.batches import LONGEST_RUN, Noise, make_batch  # noqa: E402
from engine.train.decode import GRID, REFERENCE, decode  # noqa: E402
from engine.train.export import export_checkpoint  # noqa: E402
from engine.train.network import Network, Shape  # noqa: E402
from engine.train.stage import Stage, load_state, run_stage  # noqa: E402
from engine.train.vocabulary import END_ID, MASK_ID, Encoded, encode, full_text, learn_tokenizer, save  # noqa: E402
from redline_engine.config import ModelSpec  # noqa: E402
from redline_engine.models.base import Query, batch_of  # noqa: E402
from redline_engine.models.checkpoint import load  # noqa: E402

SMALL = Shape(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
TOY = Stage("toy", Noise(8, run_share=0.5, spare_share=0.5), steps=60, batch=8, cool_down=0.5)


@pytest.fixture(scope="module")
def tokenizer():
    return learn_tokenizer(1)


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_text_survives_the_tokenizer_and_digits_stand_alone(tokenizer):
    for problem in distinct(9, "test", 200):
        text = full_text(problem)
        (row,) = encode(tokenizer, [problem])
        assert tokenizer.decode(row.prompt + row.answer) == text
        assert max(row.prompt + row.answer) < Shape().vocab_size
    assert all(len(token) == 1 for token in tokenizer.get_vocab() if re.search(r"\d", token))


def one_row(noise, seed, length=21, answer=30):
    row = Encoded(list(range(10, 10 + length)), list(range(50, 50 + answer)))
    return row, make_batch([row], noise, SMALL, [np.random.default_rng(seed)])


def test_two_copies_mask_each_answer_token_once_and_no_prompt_token():
    for seed in range(20):
        row, batch = one_row(Noise(8), seed)
        start = len(row.prompt) // 8 * 8
        masked = batch.noisy == MASK_ID
        expected = torch.arange(start, start + masked.shape[1]) >= len(row.prompt)
        assert torch.equal(masked.sum(dim=0), expected.int())
        assert torch.equal(batch.targets[batch.weights == 1].bincount(minlength=99)[50:80], torch.ones(30).long())
        assert (batch.targets[batch.weights < 1] == END_ID).all()


def test_noisy_blocks_see_their_run_and_clean_blocks_before_it():
    widest = 0
    for seed in range(40):
        row, batch = one_row(Noise(8, run_share=1.0), seed)
        long, first = batch.clean.shape[1], len(row.prompt) // 8
        for view in batch.view.noisy[:, 0] == 0:
            for position, sees in enumerate(view):
                block = first + position // 8
                clean = sees[:long].nonzero().flatten() // 8
                noisy = first + sees[long:].nonzero().flatten() // 8
                together = torch.cat([clean, noisy])
                assert together.bincount().tolist() == [8] * (block + 1), "each block up to its own is seen once"
                widest = max(widest, len(noisy) // 8)
    assert widest == LONGEST_RUN


def test_training_and_decoding_networks_give_equal_logits(tokenizer, tmp_path):
    network = Network(SMALL, 0)
    for parameter in network.parameters():
        parameter.data.mul_(2).copy_(parameter.data.half())
    save(tokenizer, tmp_path / "tokenizer.json")
    export_checkpoint(tmp_path / "c", network.state_dict(), SMALL, 8, tmp_path / "tokenizer.json")
    model = load(ModelSpec(str(tmp_path / "c"), device="cpu"))
    row, batch = one_row(Noise(8), 0)
    blocks = range(len(row.prompt) // 8, batch.clean.shape[1] // 8)
    for number, block in enumerate(blocks):
        tokens = batch.clean[0, : block * 8 + 8].clone()
        tokens[-8:] = batch.noisy[0, number * 8 : number * 8 + 8]
        asked = torch.arange(number * 8, number * 8 + 8)
        expected = network(*batch[:3], asked)
        query = Query(tokens.tolist(), range(block + 1), 0, range(block * 8, block * 8 + 8))
        answer = model.forward(batch_of(8, [query]))
        probable = expected[:, : model.info.vocab_size]
        probable[:, MASK_ID] = -math.inf
        confidence, token = probable.softmax(dim=1).max(dim=1)
        assert answer.tokens[-1].tolist() == token.tolist()
        np.testing.assert_allclose(answer.confidence[-1], confidence.detach().numpy(), atol=1e-5)


def test_training_lowers_the_loss_and_goes_on_bit_for_bit_after_a_kill(tokenizer, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for out in (whole, killed):
        out.mkdir()
    run_stage(TOY, SMALL, tokenizer, whole, save_every=20)
    run_stage(TOY, SMALL, tokenizer, killed, save_every=20, stop_at=57)
    assert load_state(killed, "toy")["step"] == 40
    run_stage(TOY, SMALL, tokenizer, killed, save_every=20)
    one, other = load_state(whole, "toy"), load_state(killed, "toy")
    for part in ("network", "average"):
        assert all(torch.equal(one[part][name], other[part][name]) for name in one[part])
    early, late = (json.loads(line) for line in (whole / "log.jsonl").read_text().splitlines())
    assert late["step"] == 60
    assert late["loss"] < early["loss"]


def test_stages_follow_each_other(tokenizer, tmp_path):
    first = dataclasses.replace(TOY, name="first", noise=Noise(1), steps=3)
    run_stage(first, SMALL, tokenizer, tmp_path)
    run_stage(dataclasses.replace(TOY, name="second", steps=0, after="first"), SMALL, tokenizer, tmp_path)
    rows = encode(tokenizer, distinct(2, "train", 10))
    learner = dataclasses.replace(TOY, name="third", steps=3, after="first", carry_on=True, targets="decodes")
    run_stage(learner, SMALL, tokenizer, tmp_path, decodes=rows)
    assert load_state(tmp_path, "third")["optimiser"]["steps"] == 6
    with pytest.raises(FileNotFoundError, match="stage toy starts from it"):
        run_stage(dataclasses.replace(TOY, after="none"), SMALL, tokenizer, tmp_path)


@pytest.mark.parametrize("name", ["arithmetic-base", "arithmetic-multiblock", "arithmetic"])
def test_a_shipped_checkpoint_solves_held_out_problems(name):
    held_out = distinct("shipped", "test", 40)
    reference, fast = decode(CHECKPOINTS / name, held_out, [REFERENCE, GRID["acc80/buf4"]])
    assert sum(each.right for each in reference) >= 34
    assert sum(each.trace.forwards for each in fast) < 0.7 * sum(each.trace.forwards for each in reference)
    assert (CHECKPOINTS / name / "model.safetensors").stat().st_size < 10e6
