"""What goes into the engine and what comes out: prompts, replies, and which requests are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from redline_engine.config import DecodeKnobs, KnobError
from redline_engine.models.base import ModelInfo
from redline_engine.trace import Trace


class PromptError(ValueError):
    """A prompt that cannot be decoded; the text names it."""


class Prompt(NamedTuple):
    """Token ids to continue, and the name to use in messages."""

    id: str
    tokens: Sequence[int]


class Reply(NamedTuple):
    """What one configuration answered to one prompt.

    Parameters
    ----------
    ticket
        Which submitted prompt, as `Engine.submit` numbered it.
    configuration
        Which of the configurations it was submitted with.
    tokens
        The reply up to and including its end token; no mask, nothing behind the end. Empty after an error.
    text
        Its text without end token and stop string; None without a `detokenize` function.
    trace
        Accounting and finish reason.
    error
        None, or why there is no reply; names the prompt.
    """

    ticket: int
    configuration: int
    tokens: tuple[int, ...]
    text: str | None
    trace: Trace
    error: str | None = None


def check_request(prompt: Prompt, configurations: Sequence[DecodeKnobs], info: ModelInfo, has_text: bool) -> None:
    """Refuse a request that cannot be decoded.

    Parameters
    ----------
    prompt, configurations
        The request; block sizes may be left to the model.
    info
        Of the model that shall decode it.
    has_text
        Whether tokens can be turned into text, as stop strings need.

    Raises
    ------
    KnobError
        If there is no configuration, or some ask for what cannot be done; lists every fault.
    PromptError
        If the prompt is empty, holds a mask or an unknown token, or would outgrow the model's positions.
    """
    problems = [] if configurations else [f"prompt {prompt.id}: there is no configuration to decode it with"]
    for number, knobs in enumerate(configurations):
        if knobs.stop_strings and not has_text:
            problems.append(f"configurations[{number}] stop_strings: need an engine with a detokenize function")
        strange = [token for token in knobs.stop_tokens if token >= info.vocab_size or token == info.mask_id]
        if strange:
            problems.append(f"configurations[{number}] stop_tokens: the model cannot propose {strange}")
    if problems:
        raise KnobError(problems)
    if not len(prompt.tokens):
        raise PromptError(f"prompt {prompt.id}: no tokens; at least one is needed")
    for place, token in enumerate(prompt.tokens):
        if token == info.mask_id or not 0 <= token < info.vocab_size:
            what = "the mask" if token == info.mask_id else f"outside the vocabulary of {info.vocab_size}"
            raise PromptError(f"prompt {prompt.id}: token {token} at position {place} is {what}")
    for number, knobs in enumerate(configurations):
        size = knobs.block_size or info.block_size
        needed = -(-(len(prompt.tokens) + knobs.max_new_tokens) // size) * size
        if needed > info.max_positions:
            raise PromptError(
                f"prompt {prompt.id}: its {len(prompt.tokens)} tokens and max_new_tokens {knobs.max_new_tokens} of "
                f"configurations[{number}] need {needed} positions; the model has {info.max_positions}"
            )
