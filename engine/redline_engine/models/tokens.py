"""What decoding needs to know of a checkpoint beside its network: mask, end tokens, block size; and where it is from.

SDAR's and LLaDA2's published directories say little of this in ``config.json``. The mask is one of the tokenizer's
special tokens; turns end with a token that ``generation_config.json`` may not name; the block size is in the name of
the directory. What the user states wins; otherwise sources that contradict each other are an error, and so is a name
that seems to hold a block size but is not written as published ones are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline_engine.config import ModelSpec
from redline_engine.models.base import ModelInfo
from redline_engine.models.reading import refuse
from redline_engine.models.surface import (
    CheckpointError,
    Family,
    Found,
    block_sizes,
    doubtful_block,
    has_chat_template,
    published_names,
    read_json,
    tokenizer_remedy,
)

MASK_TOKENS = ("<|MASK|>", "<|mask|>", "<mask>", "[MASK]")
TURN_ENDS = ("<|im_end|>", "<|role_end|>", "</s>")  # they end a chat model's reply whatever its files say
_PUBLISHED_MASKS: Mapping[Family, int] = {"sdar": 151669, "sdar_moe": 151669, "llada2": 156895}
_STATED = "stated"
_OPTIONS = {"block_size": "--knob block_size=N", "mask_id": "--mask-id N", "end_ids": "--end-ids N,N"}


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
    added = _added_tokens(tokenizer, directory)
    own = _vocabulary(tokenizer, directory / "tokenizer.json")
    vocabulary = own | added
    size = int(config["vocab_size"])
    known = max(vocabulary.values()) + 1 if own else size
    faults: list[str] = []

    mask = _mask(spec, config, family, directory, vocabulary, known, faults)
    # A token is proposed only if the tokenizer knows it. Masks are never proposed, so theirs may be the id after these.
    size = min(size, known + 1 if mask is not None and mask.value == known else known)
    block = _block_size(spec, config, family, directory, faults)
    ends, end_from = _ends(spec, config, directory, added)
    if mask is not None and not _is_token(mask.value, size):
        faults.append(f"mask token {mask.value} ({mask.origin}) is not one of {size} ids; {_state('mask_id')}")
    if block is not None and (not _is_token(block.value, 513) or block.value < 1):
        faults.append(
            f"block_size {block.value!r} ({block.origin}) is not allowed; it must be from 1 to 512: "
            f"{_state('block_size')}"
        )
    faults += _faults_of_ends(ends, end_from, size, mask)
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


def _state(knob: str) -> str:
    """Where a user states what the files do not."""
    return f"state {knob} under source: {{engine: ...}} of the grid file (engine inspect: {_OPTIONS[knob]})"


def _vocabulary(tokenizer: Mapping[str, Any], path: Path) -> dict[str, int]:
    """Token to id of a ``tokenizer.json``, whose model keeps a map, or (Unigram) a list of tokens and scores.

    Raises
    ------
    CheckpointError
        It keeps something else.
    """
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list) and all(isinstance(each, list) and each for each in vocabulary):
        return {str(each[0]): number for number, each in enumerate(vocabulary)}
    if isinstance(vocabulary, dict) and all(_is_token(number, 2**31) for number in vocabulary.values()):
        return vocabulary
    if vocabulary is None:
        return {}
    raise CheckpointError(f"{path}: model.vocab is neither a map from tokens to ids nor a list of tokens and scores")


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
    vocabulary: Mapping[str, int],
    known: int,
    faults: list[str],
) -> Found | None:
    """Mask token, after a complaint if it is unknown or sources differ; `known` ids are in the tokenizer."""
    if spec.mask_id is not None:
        return Found(spec.mask_id, _STATED)
    said = [Found(config["mask_token_id"], "config.json")] if config.get("mask_token_id") is not None else []
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        token = read_json(directory / file, optional=True).get("mask_token")
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str) and text in vocabulary:
            said.append(Found(vocabulary[text], f"{text} of {file}"))
    usual = [Found(vocabulary[text], f"{text} of the tokenizer") for text in MASK_TOKENS if text in vocabulary]
    if not said or said[0].value not in {each.value for each in usual}:
        said += usual
    if said:
        return _agreed("mask token", "mask_id", said, faults)
    published = _PUBLISHED_MASKS[family]
    owner = next((token for token, number in vocabulary.items() if number == published), None)
    if owner is None and published <= known and published < config["vocab_size"]:
        return Found(published, f"published for {family}")
    if owner is not None:
        why = f"no file names it, and that of {family}, {published}, is {owner!r} in this tokenizer;"
    elif (directory / "tokenizer.json").exists():
        why = f"no file names it, and the tokenizer has none of {', '.join(MASK_TOKENS)};"
    else:
        why = f"there is no tokenizer.json; {tokenizer_remedy(directory)}; or"
    faults.append(f"mask token unknown: {why} {_state('mask_id')}")
    return None


def _block_size(
    spec: ModelSpec, config: Mapping[str, Any], family: Family, directory: Path, faults: list[str]
) -> Found | None:
    """Block size, after a complaint if it is unknown or sources differ."""
    if spec.block_size is not None:
        return Found(spec.block_size, _STATED)
    if said := block_sizes(config, family, directory):
        return _agreed("block_size", "block_size", said, faults)
    names = published_names(directory)
    if odd := doubtful_block(names):
        why = f"the name {odd.origin} holds {odd.value!r}, which is not written as published ones are (-b4 ... -b64)"
    else:
        why = f"neither config.json nor the name {' or '.join(names)} says it (-b4 ... -b64)"
    faults.append(f"no block_size: {why}; {_state('block_size')}")
    return None


def _agreed(what: str, knob: str, said: list[Found], faults: list[str]) -> Found:
    """First of the values, after a complaint if another one differs."""
    for other in said[1:]:
        if other.value != said[0].value:
            values = f"{said[0].value} ({said[0].origin}) contradicts {other.value} ({other.origin})"
            faults.append(f"{what}: {values}; {_state(knob)}")
            break
    return said[0]


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


def _faults_of_ends(ends: tuple[Any, ...], origin: str, size: int, mask: Found | None) -> list[str]:
    """Complaints about end tokens that are none, or that no reply can hold."""
    if not ends:
        return [f"end tokens unknown: no file names an eos_token_id, or it is empty; {_state('end_ids')}"]
    if odd := [end for end in ends if not _is_token(end, size)]:
        return [f"end tokens {odd} ({origin}) are not among {size} ids; {_state('end_ids')}"]
    if mask is not None and mask.value in ends:
        return [
            f"end token {mask.value} ({origin}) is the mask token ({mask.origin}), which ends no reply; "
            f"{_state('end_ids')}"
        ]
    return []
