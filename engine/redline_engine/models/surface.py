"""What can be told of a checkpoint without its network: family, published name, block size in it, chat template.

Standard library only, so that whoever reads a grid file can know it without loading torch.
"""

from __future__ import annotations

import json
import os
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
_LIKE_A_BLOCK = re.compile(
    r"(?<![a-z\d])b[-_.=]?\d[\w.]*"  # .b32, -b32_v2, -b32k, -b1024, -b-32
    r"|(?<=[a-z])b(?:4|8|16|32|64)(?!\d)\w*"  # Chatb32
    r"|(?:block|blk|(?<![a-z])b[dls])[-_ ]?(?:size|len|length)?[-_.= ]?\d\w*"  # block32, block_size-32, bs32
    r"|\d+[-_ ]?(?:block|blk)",
    re.IGNORECASE,
)
_CACHE = re.compile(r"models--[^/]*?--(.+)")  # a repository in the download cache of huggingface_hub
_PUBLISHED_BLOCKS: Mapping[Family, tuple[str, int]] = {  # for names that hold this text and no block size
    "sdar": ("sdar", 4),
    "sdar_moe": ("sdar", 4),
    "llada2": ("llada2", 32),
}
_OLDER_TOKENIZERS = ("vocab.json", "merges.txt", "added_tokens.json", "vocab.txt", "tokenizer.model", "spiece.model")
LFS_POINTER = b"version https://git-lfs"


class CheckpointError(ValueError):
    """A directory that does not hold a model this engine can run; the text names file and fault, one a line."""


class Found(NamedTuple):
    """A value and where it was found."""

    value: Any
    origin: str


def broken_link(path: Path) -> str | None:
    """Say what a link leads to, if that is not there."""
    if path.is_symlink() and not path.exists():
        return f"links to {os.readlink(path)}, which is not there; download it again"
    return None


def read_config(directory: Path) -> dict[str, Any]:
    """Read ``config.json``.

    Raises
    ------
    CheckpointError
        As `read_json`; where there is none, with the directory that was perhaps meant.
    """
    path = directory / "config.json"
    if path.exists() or path.is_symlink():
        return read_json(path)
    inside = sorted([*directory.glob("snapshots/*/config.json"), *directory.glob("*/config.json")])
    if inside:
        remedy = f"there is one in {inside[-1].parent}; give that directory"
    elif _CACHE.fullmatch(directory.name):
        remedy = "this is a folder of the download cache; give the one in it that is called snapshots/<hash>"
    else:
        remedy = "give the directory that the download made, or download this file too"
    raise CheckpointError(f"{path}: cannot be read (no such file); {remedy}")


def tokenizer_remedy(directory: Path) -> str:
    """Say how to come by the ``tokenizer.json`` that a directory lacks."""
    older = [name for name in _OLDER_TOKENIZERS if (directory / name).exists()]
    if not older:
        return "download it into this directory"
    steps = f"AutoTokenizer.from_pretrained('{directory}').save_pretrained('{directory}')"
    return f'make it from {", ".join(older)}: python -c "from transformers import AutoTokenizer; {steps}"'


def read_json(path: Path, optional: bool = False) -> dict[str, Any]:
    """Read a JSON object; a file that may be missing is an empty one.

    Raises
    ------
    CheckpointError
        The file cannot be read, links to one that is not there, or holds something else.
    """
    if fault := broken_link(path):
        raise CheckpointError(f"{path}: {fault}")
    try:
        content = path.read_bytes()
    except OSError as error:
        if optional and isinstance(error, FileNotFoundError):
            return {}
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); download it again") from error
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


def published_names(directory: Path) -> list[str]:
    """Names of the model: that of the path as it is given, and that of the directory it leads to, if it is another.

    A snapshot in the download cache goes by the name of its repository.
    """
    names = []
    for path in (Path(os.path.abspath(directory)), directory.resolve()):
        cached = _CACHE.fullmatch(path.parent.parent.name) if path.parent.name == "snapshots" else None
        names.append(cached[1] if cached else path.name)
    return list(dict.fromkeys(names))


def doubtful_block(names: list[str]) -> Found | None:
    """First part of a name that looks like a block size, but is not written as published ones are."""
    for name in names:
        if odd := _LIKE_A_BLOCK.search(_NAMED_BLOCK.sub("|", name)):
            return Found(odd[0], name)
    return None


def block_sizes(config: Mapping[str, Any], family: Family, directory: Path) -> list[Found]:
    """Everything that says a block size; they should agree. Nothing is said by names that look as if they did."""
    said = [Found(config["block_size"], "config.json")] if config.get("block_size") is not None else []
    names = published_names(directory)
    if not said and doubtful_block(names):
        return []
    text, usual = _PUBLISHED_BLOCKS[family]
    for name in names:
        written = [Found(int(found), f"name {name}") for found in _NAMED_BLOCK.findall(name)]
        if not written and text in name.lower() and config.get("block_size") is None:
            kind = "llada2" if family == "llada2" else f"names such as {name}, without -b"
            written = [Found(usual, f"published for {kind}")]
        said += written
    return said or ([Found(usual, "published for llada2")] if family == "llada2" else [])


def has_chat_template(directory: Path) -> bool:
    """Whether the tokenizer's files hold a chat template, i.e. the model was trained on conversations.

    Raises
    ------
    CheckpointError
        A file cannot be read.
    """
    settings = read_json(directory / "tokenizer_config.json", optional=True)
    template = directory / "chat_template.jinja"
    if fault := broken_link(template):
        raise CheckpointError(f"{template}: {fault}")
    return bool(settings.get("chat_template")) or template.exists()
