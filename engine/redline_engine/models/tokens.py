"""What decoding needs to know of a checkpoint beside its network: mask, end tokens, block size; and where it is from.

SDAR's and LLaDA2's published directories say little of this in ``config.json``. The mask is one of the tokenizer's
special tokens; turns end with a token that ``generation_config.json`` may not name; the block size is in the name of
the directory. What the user states wins; otherwise sources that contradict each other are an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline_engine.config import ModelSpec
from redline_engine.models.base import ModelInfo
from redline_engine.models.reading import refuse
from redline_engine.models.surface import CheckpointError, Family, Found, block_sizes, has_chat_template, read_json

MASK_TOKENS = ("<|MASK|>", "<|mask|>", "<mask>", "[MASK]")
TURN_ENDS = ("<|im_end|>", "<|role_end|>", "</s>")  # they end a chat model's reply whatever its files say
_PUBLISHED_MASKS: Mapping[Family, int] = {"sdar": 151669, "sdar_moe": 151669, "llada2": 156895}
_STATED = "stated"


@dataclass(frozen=True)
class Facts:
    """Facts for decoding, and the files or settings they are from.

    Parameters
    ----------
    info
        As the engine reads them.
    block_size_from, mask_from, end_from
        Where these are from.
    has_chat_template
        Whether the directory holds a chat template, i.e. the model was trained on conversations.
    """

    info: ModelInfo
    block_size_from: str
    mask_from: str
    end_from: str
    has_chat_template: bool


def read_facts(spec: ModelSpec, config: Mapping[str, Any], family: Family, directory: Path) -> Facts:
    """Read the facts; what `spec` states goes first.

    Raises
    ------
    CheckpointError
        With every fact that is unknown, contradictory, or no token of the vocabulary.
    """
    tokenizer = read_json(directory / "tokenizer.json", optional=True)
    settings = read_json(directory / "tokenizer_config.json", optional=True)
    added = _added_tokens(tokenizer, directory)
    vocabulary = _vocabulary(tokenizer) | added
    size = int(config["vocab_size"])
    size = min(size, max(vocabulary.values(), default=size - 1) + 1)
    faults: list[str] = []

    mask = _mask(spec, config, family, directory, settings, vocabulary, size, faults)
    block = _block_size(spec, config, family, directory, faults)
    ends, end_from = _ends(spec, config, directory, added)
    if mask is None:
        faults.append(f"mask token unknown; give mask_id, or a tokenizer with one of {', '.join(MASK_TOKENS)}")
    elif not _is_token(mask.value, size):
        faults.append(f"mask token {mask.value} ({mask.origin}) is not one of {size} ids; give mask_id in the spec")
    if block is None:
        faults.append("no block_size: neither config.json nor the directory's name (-b4 ... -b64) says it; state it")
    elif not _is_token(block.value, 513) or block.value < 1:
        faults.append(f"block_size {block.value!r} ({block.origin}) is not allowed; it must be from 1 to 512")
    if not ends or not all(_is_token(end, size) and (mask is None or end != mask.value) for end in ends):
        faults.append(f"end tokens {list(ends)} ({end_from}) are none, or not among {size} ids; give end_ids")
    length = config.get("max_position_embeddings", 32768)
    if not _is_token(length, 2**31) or length < 1:
        faults.append(f"max_position_embeddings {length!r} is not allowed; it must be a whole number of at least 1")
    refuse(directory, faults)
    assert mask is not None
    assert block is not None
    return Facts(
        ModelInfo(size, mask.value, tuple(ends), block.value, length),
        block_size_from=block.origin,
        mask_from=mask.origin,
        end_from=end_from,
        has_chat_template=has_chat_template(directory),
    )


def _is_token(value: object, size: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size


def _vocabulary(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """Token to id, of a ``tokenizer.json`` whose model keeps its vocabulary as a map."""
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(vocabulary, dict):
        return {}
    return {token: number for token, number in vocabulary.items() if isinstance(number, int)}


def _added_tokens(tokenizer: Mapping[str, Any], directory: Path) -> dict[str, int]:
    """Tokens beside the vocabulary: of ``tokenizer.json``, and of ``added_tokens.json`` where that is older."""
    try:
        older = read_json(directory / "added_tokens.json", optional=True)
        return {token: int(number) for token, number in older.items()} | {
            str(each["content"]): int(each["id"]) for each in tokenizer.get("added_tokens") or []
        }
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{directory / 'tokenizer.json'}: added_tokens have no content and id, or added_tokens.json holds no ids"
        ) from error


def _mask(
    spec: ModelSpec,
    config: Mapping[str, Any],
    family: Family,
    directory: Path,
    settings: Mapping[str, Any],
    vocabulary: Mapping[str, int],
    size: int,
    faults: list[str],
) -> Found | None:
    if spec.mask_id is not None:
        return Found(spec.mask_id, _STATED)
    said = [Found(config["mask_token_id"], "config.json")] if config.get("mask_token_id") is not None else []
    special = read_json(directory / "special_tokens_map.json", optional=True)
    for file, values in (("special_tokens_map.json", special), ("tokenizer_config.json", settings)):
        token = values.get("mask_token")
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str) and text in vocabulary:
            said.append(Found(vocabulary[text], f"{text} of {file}"))
    if not said:
        said = [Found(vocabulary[text], f"{text} of the tokenizer") for text in MASK_TOKENS if text in vocabulary]
    if not said and _PUBLISHED_MASKS[family] < size:
        said = [Found(_PUBLISHED_MASKS[family], f"published for {family}")]
    return _agreed("mask token", "mask_id", said, faults)


def _block_size(
    spec: ModelSpec, config: Mapping[str, Any], family: Family, directory: Path, faults: list[str]
) -> Found | None:
    if spec.block_size is not None:
        return Found(spec.block_size, _STATED)
    return _agreed("block_size", "block_size", block_sizes(config, family, directory), faults)


def _agreed(what: str, knob: str, said: list[Found], faults: list[str]) -> Found | None:
    """First of the values, after a complaint if another one differs."""
    for other in said[1:]:
        if other.value != said[0].value:
            faults.append(
                f"{what}: {said[0].value} ({said[0].origin}) contradicts {other.value} ({other.origin}); state {knob}"
            )
            break
    return said[0] if said else None


def _ends(
    spec: ModelSpec, config: Mapping[str, Any], directory: Path, added: Mapping[str, int]
) -> tuple[tuple[Any, ...], str]:
    """End tokens of the generation settings, else of the configuration; and the tokens that end a turn."""
    if spec.end_ids is not None:
        return spec.end_ids, _STATED
    generation = read_json(directory / "generation_config.json", optional=True)
    name, values = "generation_config.json", generation.get("eos_token_id")
    if values is None:
        name, values = "config.json", config.get("eos_token_id")
    ends = list(values) if isinstance(values, list) else [] if values is None else [values]
    turns = [token for token in TURN_ENDS if token in added and added[token] not in ends]
    origins = [*([name] if ends else []), *turns]
    return (*ends, *(added[token] for token in turns)), " and ".join(origins) or "none found"
