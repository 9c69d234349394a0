"""What can be told of a checkpoint without its network: family, published name, block size in it, chat template.

Standard library only, so that whoever reads a grid file can know it without loading torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

Family = Literal["sdar", "sdar_moe", "llada2"]

MODEL_TYPES: Mapping[str, Family] = {
    "sdar": "sdar",
    "qwen3": "sdar",
    "sdar_moe": "sdar_moe",
    "qwen3_moe": "sdar_moe",
    "llada2_moe": "llada2",
    "llada2_moe_veomni": "llada2",  # the same with its experts stacked
}
ARCHITECTURES: Mapping[str, Family] = {
    "SDARForCausalLM": "sdar",
    "Qwen3ForCausalLM": "sdar",
    "SDARMoeForCausalLM": "sdar_moe",
    "Qwen3MoeForCausalLM": "sdar_moe",
    "LLaDA2MoeModelLM": "llada2",
}
_NAMED_BLOCK = re.compile(r"(?:^|[-_])b(\d{1,3})(?![\w.])", re.IGNORECASE)
_CACHE = re.compile(r"models--[^/]*?--(.+)")  # a repository in the download cache of huggingface_hub
_LLADA2_BLOCK, _SDAR_BLOCK = 32, 4
LFS_POINTER = b"version https://git-lfs"


class CheckpointError(ValueError):
    """A directory that does not hold a model this engine can run; the text names file and fault, one a line."""


class Found(NamedTuple):
    """A value and where it was found."""

    value: Any
    origin: str


def read_json(path: Path, optional: bool = False) -> dict[str, Any]:
    """Read a JSON object; a file that may be missing is an empty one.

    Raises
    ------
    CheckpointError
        The file cannot be read or holds something else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        if optional and isinstance(error, FileNotFoundError):
            return {}
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    if content.startswith(LFS_POINTER):
        raise CheckpointError(f"{path}: is a Git LFS pointer, not the file; fetch it with git lfs pull")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is not JSON ({error})") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{path}: holds no JSON object")
    return found


def family_of(config: Mapping[str, Any]) -> tuple[Family | None, list[str]]:
    """Family by ``model_type``, or by ``architectures`` where there is none, and whether they contradict each other."""
    model_type, names = config.get("model_type"), config.get("architectures")
    names = names if isinstance(names, list) else []
    by_name = {ARCHITECTURES[name]: name for name in names if isinstance(name, str) and name in ARCHITECTURES}
    if model_type is None and len(by_name) == 1:
        return next(iter(by_name)), []
    family = MODEL_TYPES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        return None, [f"model_type {model_type!r}; known are {', '.join(MODEL_TYPES)}"]
    return family, [
        f"model_type {model_type!r} contradicts architectures {name}; correct one of the two"
        for other, name in by_name.items()
        if other != family
    ]


def published_name(directory: Path) -> str:
    """Name of the model: that of the directory, or of the repository where it is a snapshot in the download cache."""
    resolved = directory.resolve()
    if resolved.parent.name == "snapshots" and (match := _CACHE.fullmatch(resolved.parent.parent.name)):
        return match[1]
    return resolved.name


def block_sizes(config: Mapping[str, Any], family: Family, directory: Path) -> list[Found]:
    """Everything that says a block size; they should agree."""
    said = [Found(config["block_size"], "config.json")] if config.get("block_size") is not None else []
    name = published_name(directory)
    said += [Found(int(found), f"name {name}") for found in _NAMED_BLOCK.findall(name)]
    if not said and family == "llada2":
        said = [Found(_LLADA2_BLOCK, "published for llada2")]
    if not said and "sdar" in name.lower():
        said = [Found(_SDAR_BLOCK, f"published for names such as {name}, without -b")]
    return said


def has_chat_template(directory: Path) -> bool:
    """Whether the tokenizer's files hold a chat template, i.e. the model was trained on conversations."""
    settings = read_json(directory / "tokenizer_config.json", optional=True)
    return bool(settings.get("chat_template")) or (directory / "chat_template.jinja").exists()
