"""What the bundled engine would load from a directory: everything that is known before a weight is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_redline.checkpoint_rules import decided_by_checkpoint
from pytest_redline.errors import OutcomesError
from pytest_redline.grid import plain_knobs
from pytest_redline.sources.tokenizing import Tokenizing
from redline_engine.config import DecodeKnobs, KnobError, ModelSpec
from redline_engine.request import Prompt, PromptError, check_request

if TYPE_CHECKING:
    from redline_engine.models.base import ModelInfo
    from redline_engine.models.network import NetworkShape


_USUAL_PROMPT = 512  # tokens


def inspect(
    directory: Path,
    spec: Mapping[str, Any],
    knobs: Mapping[str, Any],
    batch_size: int,
    prompt_tokens: int | None,
    grade: str,
) -> dict[str, Any]:
    """Say what would be loaded, as plain JSON types, and under ``problems`` why the gate could not serve with it.

    Parameters
    ----------
    directory
        Of the checkpoint.
    spec
        What `ModelSpec` is to be made with, beside the directory.
    knobs
        Of a configuration.
    batch_size, prompt_tokens
        Of the load that memory is planned for; None: prompts of 512 tokens, or as many as the model has positions for.
    grade
        Grader that a template is chosen for.

    Raises
    ------
    OutcomesError
        The directory holds no model that this engine can run, a knob is none, or CUDA graphs are asked for that device
        or model have none of.
    """
    try:
        import torch

        from redline_engine.models.checkpoint import (
            CheckpointError,
            Load,
            describe,
            require_graphs,
            survey,
            used_device,
        )
        from redline_engine.models.memory import free_memory, plan
    except ModuleNotFoundError as error:
        raise OutcomesError(
            f"{error.name} is not installed; install it with pip install 'pytest-redline[engine]'"
        ) from None
    try:
        decoding = DecodeKnobs.from_mapping(knobs)
        chosen = ModelSpec.from_mapping({"block_size": decoding.block_size, **spec, "checkpoint": str(directory)})
        checkpoint = describe(chosen)
        found = survey(checkpoint)
    except (KnobError, CheckpointError) as error:
        raise OutcomesError(str(error).splitlines()) from None
    family, shape, tied = checkpoint.described
    facts, info = checkpoint.facts, checkpoint.facts.info
    size = decoding.block_size or info.block_size
    if prompt_tokens is None:
        room = info.max_positions // size * size - decoding.max_new_tokens
        prompt_tokens = max(1, min(_USUAL_PROMPT, room))
    use = Load(batch_size, prompt_tokens, decoding.max_new_tokens, size, decoding.buffer_size)
    device = used_device(chosen)
    try:
        torch.device(device)
        require_graphs(checkpoint, chosen, device)
        planned, free = plan(checkpoint.described, chosen, use), free_memory(device)
    except CheckpointError as error:
        raise OutcomesError(str(error)) from None
    except RuntimeError as error:  # PyTorch's own, of a device it does not know
        raise OutcomesError(f"device {device}: {str(error).splitlines()[0]}") from None
    decided, undecided = decided_by_checkpoint(chosen, directory, grade, None)
    template = chosen.template or decided.get("template", "none")
    unreadable = _problem_of_tokenizer(directory, template)
    unservable = _problem_of_request(prompt_tokens, decoding, info)
    types = Counter[str]()
    for each in found.files.tensors.values():
        types[each.type] += each.size
    return {
        "checkpoint": str(directory),
        "family": family,
        "network": _network(shape, tied),
        "parameters": sum(_product(weight.shape) for weight in found.weights.values()),
        "positions": info.max_positions,
        "servable": not unservable,
        "vocabulary": info.vocab_size,
        "files": {"bytes": types.total(), "types": dict(sorted(types.items()))},
        "loaded": {
            "dtype": chosen.dtype,
            "weights": chosen.weights or chosen.dtype,
            "device": device,
            "cuda_graphs": chosen.cuda_graphs,
        },
        "block_size": {"value": info.block_size, "from": facts.block_size_from},
        "mask": {"value": info.mask_id, "from": facts.mask_from},
        "ends": {"value": list(info.end_ids), "from": facts.end_from},
        "chat_template": facts.has_chat_template,
        "template": template,
        "tokenizer": not unreadable,
        "memory": {
            "batch_size": batch_size,
            "prompt_tokens": prompt_tokens,
            "new_tokens": decoding.max_new_tokens,
            **planned._asdict(),
            "page": planned.position * info.block_size,
            "total": planned.total(device),
            "free": free,
            "fits": free is None or planned.total(device) <= free,
        },
        "knobs": {"block_size": info.block_size, **plain_knobs(decoding.effective())},
        "problems": [*([undecided] if undecided else []), *unreadable, *unservable],
    }


def _problem_of_tokenizer(directory: Path, template: str) -> list[str]:
    """What the gate would say when it is to read prompts."""
    try:
        Tokenizing(directory, template)
    except OutcomesError as error:
        return str(error).splitlines()
    return []


def _problem_of_request(prompt_tokens: int, knobs: DecodeKnobs, info: ModelInfo) -> list[str]:
    """What the engine would say to a prompt of so many tokens."""
    token = int(info.mask_id == 0)  # any but the mask
    try:
        check_request(Prompt(f"--prompt-tokens {prompt_tokens}", [token] * prompt_tokens), [knobs], info, has_text=True)
    except (KnobError, PromptError) as error:
        lower = "; lower --prompt-tokens or --knob max_new_tokens" if isinstance(error, PromptError) else ""
        own = str(error).replace(" of configurations[0]", "").replace("configurations[0] ", "")
        return [line + lower for line in own.splitlines()]
    return []


def _network(shape: NetworkShape, tied: bool) -> dict[str, Any]:
    experts = shape.experts
    return {
        "layers": shape.num_hidden_layers,
        "hidden": shape.hidden_size,
        "heads": shape.num_attention_heads,
        "kv_heads": shape.num_key_value_heads,
        "head_dim": shape.head_dim,
        "rotary_dim": shape.rotary_dim or shape.head_dim,
        "tied_head": tied,
        "experts": None
        if experts is None
        else {
            "count": experts.num_experts,
            "per_token": experts.num_experts_per_tok,
            "width": experts.moe_intermediate_size,
            "groups": experts.n_group,
            "shared_width": experts.shared_intermediate_size,
            "dense_layers": sum(shape.is_dense(number) for number in range(shape.num_hidden_layers)),
        },
    }


def _product(sizes: tuple[int, ...]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total
