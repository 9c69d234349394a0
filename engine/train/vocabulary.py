"""The tokenizer: byte-pair encoding learnt from the generator's own text, one token per digit and per common word."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.train.problems import Problem, problems

PAD, MASK, END = "<pad>", "<mask>", "<eos>"
PAD_ID, MASK_ID, END_ID = 0, 1, 2
VOCABULARY = 384  # at most; the generator's words need fewer
_SAMPLE = 4000  # problems that it is learnt from


class Encoded(NamedTuple):
    """Token ids of a prompt and of its answer, without end token."""

    prompt: list[int]
    answer: list[int]


def learn_tokenizer(seed: int) -> Tokenizer:
    """Learn the tokenizer from training problems of a seed."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    source = problems(seed, "train")
    texts = [full_text(next(source)) for _ in range(_SAMPLE)]
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[PAD, MASK, END], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    assert [tokenizer.token_to_id(token) for token in (PAD, MASK, END)] == [PAD_ID, MASK_ID, END_ID]
    return tokenizer


def full_text(problem: Problem) -> str:
    """Return prompt and answer as one text; the answer follows the question mark after a space."""
    return f"{problem.prompt} {problem.answer}"


def encode(tokenizer: Tokenizer, batch: Sequence[Problem]) -> list[Encoded]:
    """Encode problems; prompt and answer apart, as a server would see them."""
    prompts = tokenizer.encode_batch_fast([problem.prompt for problem in batch])
    answers = tokenizer.encode_batch_fast([f" {problem.answer}" for problem in batch])
    return [Encoded(prompt.ids, answer.ids) for prompt, answer in zip(prompts, answers, strict=True)]


def save(tokenizer: Tokenizer, path: Path) -> None:
    """Write ``tokenizer.json``."""
    path.write_text(json.dumps(json.loads(tokenizer.to_str()), indent=1, ensure_ascii=True) + "\n", encoding="utf-8")
