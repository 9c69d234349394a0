"""A random Qwen3 with a block-causal mask: the oracle for the SDAR network. Needs torch and transformers."""

from __future__ import annotations

import json

import naive
import torch
import transformers
from safetensors.torch import load_file

torch.set_num_threads(1)  # matrices this small gain nothing from more, and other tests run beside these

B, MASK, END = 4, 119, 118


def random_qwen3(tied):
    """Weights so wide that the most probable token varies."""
    torch.manual_seed(11)
    config = transformers.Qwen3Config(
        vocab_size=120,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
        eos_token_id=END,
        attn_implementation="eager",
    )
    oracle = transformers.Qwen3ForCausalLM(config).eval().float()
    for parameter in oracle.parameters():
        parameter.data.normal_(mean=float(parameter.ndim == 1), std=0.3)
    return oracle


def qwen3_of(directory):
    """The Qwen3 that a bundled checkpoint's weights make."""
    known = transformers.Qwen3Config().to_dict()
    values = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    rope = {"rope_type": "default", "rope_theta": values["rope_theta"]}
    sizes = {name: value for name, value in values.items() if name in known and not name.endswith(("dtype", "_type"))}
    config = transformers.Qwen3Config(**(sizes | {"rope_parameters": rope, "attn_implementation": "eager"}))
    oracle = transformers.Qwen3ForCausalLM(config).eval().float()
    missing, unknown = oracle.load_state_dict(load_file(directory / "model.safetensors"), strict=False)
    assert (missing, unknown) == (["lm_head.weight"], [])
    return oracle


def oracle_logits(oracle, tokens, block_size=B):
    """Logits ``[T, V]`` of one sequence, every row seeing its own and all earlier blocks."""
    block = torch.arange(len(tokens)) // block_size
    mask = (block[None, :] <= block[:, None])[None, None]
    bias = torch.zeros(mask.shape, dtype=oracle.dtype).masked_fill(~mask, -torch.inf)
    with torch.no_grad():
        ids = torch.tensor([list(tokens)])
        return oracle(ids, attention_mask=bias, position_ids=torch.arange(len(tokens))[None]).logits[0]


class Margins:
    """The oracle as a model of the naive loop; keeps how close its closest decision was."""

    def __init__(self, oracle, block_size, threshold):
        self.oracle, self.block_size, self.threshold = oracle, block_size, threshold
        self.closest = 1.0
        self.seen = {}

    def __call__(self, position, visible):
        key = tuple(visible)
        if key not in self.seen:
            logits = oracle_logits(self.oracle, visible, self.block_size)
            logits[:, MASK] = -torch.inf
            self.seen[key] = logits.softmax(dim=1)
        best, second = self.seen[key][position].topk(2)
        confidence = float(best[0])
        first = len(visible) - self.block_size
        rivals = [p for p in range(first, len(visible)) if visible[p] == MASK and p != position]
        others = [self.threshold, *self.seen[key].amax(dim=1)[rivals].tolist()]
        self.closest = min(self.closest, float(best[0] - best[1]), *(abs(confidence - each) for each in others))
        return (int(second[0]),), confidence


RUNS = {}


def oracle_run(oracle, tokens, knobs):
    """The naive loop's run with the oracle, and how close its closest decision was."""
    size = knobs.block_size or B
    key = (oracle, tuple(tokens), knobs)
    if key not in RUNS:
        case = naive.Case(
            prompt=tokens,
            block_size=size,
            buffer_size=knobs.buffer_size,
            semi_complete_threshold=knobs.semi_complete_threshold,
            add_block_threshold=knobs.add_block_threshold,
            max_new_tokens=knobs.max_new_tokens,
            accept_threshold=knobs.accept_threshold if knobs.schedule == "threshold" else None,
            quota=knobs.accept_count if knobs.schedule == "count" else 1,
            steps=knobs.denoising_steps if knobs.schedule == "steps" else None,
            end_ids=(END,),
            mask=MASK,
        )
        says = Margins(oracle, size, knobs.accept_threshold)
        RUNS[key] = naive.decode(case, says), says.closest
    return RUNS[key]
