"""Block-by-block decoding equals, token for token, that of an independent code: diffusers' LLaDA2 pipeline."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
diffusers = pytest.importorskip("diffusers", minversion="0.42")

from qwen3_oracle import END, MASK, B, oracle_logits, oracle_run  # noqa: E402

from redline_engine.config import DecodeKnobs, ModelSpec  # noqa: E402
from redline_engine.engine import Engine  # noqa: E402
from redline_engine.models.checkpoint import load  # noqa: E402
from redline_engine.request import Prompt  # noqa: E402

NEW = 22


class BlockCausal(torch.nn.Module):
    """The oracle as the pipeline calls a model: it adds the block mask and rules the mask token out."""

    def __init__(self, oracle):
        super().__init__()
        self.oracle, self.device, self.dtype = oracle, torch.device("cpu"), torch.float32

    def forward(self, tokens, attention_mask, position_ids):
        logits = oracle_logits(self.oracle, tokens[0].tolist())[None]
        logits[:, :, MASK] = torch.finfo(logits.dtype).min
        return SimpleNamespace(logits=logits)


def pipeline_reply(oracle, prompt, threshold, steps):
    pipeline = diffusers.LLaDA2Pipeline(BlockCausal(oracle), diffusers.BlockRefinementScheduler(block_length=B))
    pipeline.set_progress_bar_config(disable=True)
    made = pipeline(
        input_ids=torch.tensor([prompt]),
        gen_length=NEW,
        block_length=B,
        num_inference_steps=steps,
        threshold=threshold,
        editing_threshold=None,
        sampling_method="greedy",
        eos_token_id=END,
        mask_token_id=MASK,
        output_type="seq",
    )
    tokens = made.sequences[0].tolist()
    return tokens[: tokens.index(END) + 1] if END in tokens else tokens


SETTINGS = [
    (DecodeKnobs(buffer_size=1, accept_threshold=0.2, max_new_tokens=NEW), 0.2, B),
    (DecodeKnobs(buffer_size=1, accept_threshold=0.5, max_new_tokens=NEW), 0.5, B),
    (DecodeKnobs(buffer_size=1, accept_threshold=0.9, max_new_tokens=NEW), 0.9, B),
    (DecodeKnobs(buffer_size=1, schedule="steps", denoising_steps=1, max_new_tokens=NEW), 2.0, 1),
    (DecodeKnobs(buffer_size=1, schedule="steps", denoising_steps=3, max_new_tokens=NEW), 2.0, 3),
    (DecodeKnobs(buffer_size=1, schedule="count", accept_count=2, max_new_tokens=NEW), 2.0, 2),
]
PROMPTS = [list(range(1, length + 1)) for length in (1, B - 1, B, B + 1, 3 * B + 5)]


def test_replies_equal_the_pipelines(checkpoint):
    """Unless some decision was nearer than rounding can decide."""
    oracle, directory = checkpoint
    engine = Engine(load(ModelSpec(str(directory), device="cpu", block_size=B, mask_id=MASK)))
    grid = engine.generate([Prompt(str(len(each)), each) for each in PROMPTS], [knobs for knobs, _, _ in SETTINGS])
    compared = 0
    for (knobs, threshold, steps), row in zip(SETTINGS, grid, strict=True):
        for prompt, reply in zip(PROMPTS, row, strict=True):
            if oracle_run(oracle, prompt, knobs)[1] > 1e-4:
                compared += 1
                assert list(reply.tokens) == pipeline_reply(oracle, prompt, threshold, steps)
    assert compared > 0.8 * len(SETTINGS) * len(PROMPTS)
