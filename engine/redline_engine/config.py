"""What may be asked of the engine: a model, once at load time, and decoding knobs, per configuration.

Both are frozen and validated when made. Every fault of a knob map is reported in one go, an unknown knob with a
suggestion, and a knob that the other knobs switch off is a fault too: a configuration that names a knob nobody reads
would be measured under a false label. `DecodeKnobs.effective` says which knobs are read and with what value.

Standard library only, so that whoever reads a grid file can validate it without loading numpy or torch.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

from redline_engine.templates import TEMPLATES

Schedule = Literal["threshold", "count", "steps"]
Dtype = Literal["float32", "bfloat16"]
Weights = Literal["float32", "bfloat16", "int8", "int4"]


class KnobError(ValueError):
    """Knobs that cannot be carried out; ``problems`` holds one sentence for each fault."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class Sampling(NamedTuple):
    """How tokens are drawn; part of what decides a model's answer. Greedy decoding has no `Sampling`."""

    temperature: float
    top_p: float
    top_k: int
    seed: int


class _Rule(NamedTuple):
    """What a knob may be: a text to say so, and the check."""

    allowed: str
    holds: Callable[[object], bool]
    optional: bool = False


def _number(low: float, high: float) -> _Rule:
    def holds(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high

    return _Rule(f"a number from {low:g} to {high:g}", holds)


def _is_whole(value: object, low: int, high: float) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _whole(low: int, high: float = math.inf, optional: bool = False) -> _Rule:
    text = f"a whole number from {low} to {high:g}" if math.isfinite(high) else f"a whole number of at least {low}"
    return _Rule(text, lambda value: _is_whole(value, low, high), optional)


def _choice(*names: str) -> _Rule:
    return _Rule("one of " + ", ".join(names), lambda value: value in names)


_TEXT = _Rule("a text of at least one character", lambda value: isinstance(value, str) and value != "")
_TOKENS = _Rule(
    "a list of token ids",
    lambda value: isinstance(value, tuple) and all(_is_whole(item, 0, math.inf) for item in value),
)
_TEXTS = _Rule(
    "a list of texts of at least one character each",
    lambda value: isinstance(value, tuple) and all(_TEXT.holds(item) for item in value),
)


class _Validated:
    """Checks every field against its rule when an instance is made."""

    _rules: ClassVar[Mapping[str, _Rule]] = {}

    def __post_init__(self) -> None:
        problems = self._out_of_range({item.name: getattr(self, item.name) for item in fields(cast(Any, self))})
        if problems:
            raise KnobError(problems.values())

    @classmethod
    def _out_of_range(cls, values: Mapping[str, object]) -> dict[str, str]:
        """Names of `values` that break their rule, and what is wrong."""
        problems = {}
        for item in fields(cast(Any, cls)):
            value, rule = values.get(item.name, item.default), cls._rules[item.name]
            if value is MISSING:
                problems[item.name] = f"{item.name}: missing; it must be {rule.allowed}"
            elif not (rule.optional and value is None) and not rule.holds(value):
                problems[item.name] = f"{item.name}: {value!r} is not allowed; it must be {rule.allowed}"
        return problems

    @classmethod
    def _read_map(cls, knobs: Mapping[str, object]) -> tuple[dict[str, Any], list[str]]:
        """Values that can be used, lists made tuples, and what is wrong with the others."""
        known = [item.name for item in fields(cast(Any, cls))]
        problems = []
        for name in knobs:
            if name not in known:
                close = difflib.get_close_matches(str(name), known, n=1)
                hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
                problems.append(f"{name}: unknown knob; {hint}")
        values = {
            name: tuple(value) if isinstance(value, list) else value for name, value in knobs.items() if name in known
        }
        wrong = cls._out_of_range(values)
        return {name: value for name, value in values.items() if name not in wrong}, [*problems, *wrong.values()]


@dataclass(frozen=True)
class ModelSpec(_Validated):
    """A model to load, and on what.

    Parameters
    ----------
    checkpoint
        A directory in the Hugging Face layout: ``config.json``, ``model.safetensors`` or shards with their index.
    dtype
        Type of weights and arithmetic, "float32" or "bfloat16". Confidences are float32 in either case.
    device
        "auto" (CUDA where there is one, else the CPU) or a PyTorch device name.
    block_size
        Positions per diffusion block. None: ``block_size`` of ``config.json``, or as the directory's published name
        says (SDAR-8B-Chat-b32: 32; SDAR-8B-Chat: 4), or 32 for LLaDA2.
    mask_id
        Token that stands at an unresolved position. None: ``mask_token_id`` of ``config.json``, else the token that
        the tokenizer files name as mask, else the published one of the family.
    end_ids
        Tokens that end a reply. None: ``eos_token_id`` of ``generation_config.json``, else of ``config.json``, and
        the tokenizer's special tokens ``<|im_end|>``, ``<|role_end|>`` and ``</s>``.
    template
        Name of the `redline_engine.templates.Template` that text prompts are put into; None: as they are. Part of what
        decides an answer, though loading does not read it.
    weights
        Precision in which the weights of the linear layers are kept, "float32", "bfloat16", "int8" or "int4"; the
        arithmetic is that of ``dtype``, to whose values int8 and int4 are rounded. None: as ``dtype``, and never wider.
    cuda_graphs
        Run small batches in fixed shapes, recorded as CUDA graphs; CUDA devices only.
    """

    checkpoint: str
    dtype: Dtype = "float32"
    device: str = "auto"
    block_size: int | None = None
    mask_id: int | None = None
    end_ids: tuple[int, ...] | None = None
    weights: Weights | None = None
    template: str | None = None
    cuda_graphs: bool = False

    _rules: ClassVar[Mapping[str, _Rule]] = {
        "checkpoint": _TEXT,
        "dtype": _choice("float32", "bfloat16"),
        "device": _TEXT,
        "block_size": _whole(1, 512, optional=True),
        "mask_id": _whole(0, optional=True),
        "end_ids": _TOKENS._replace(optional=True),
        "weights": _choice("float32", "bfloat16", "int8", "int4")._replace(optional=True),
        "template": _choice(*TEMPLATES)._replace(optional=True),
        "cuda_graphs": _Rule("true or false", lambda value: isinstance(value, bool)),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.weights, self.dtype) == ("float32", "bfloat16"):
            raise KnobError(["weights: float32 is wider than dtype bfloat16, to which each forward would round it"])

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> Self:
        """Make a spec from a map as a YAML reader gives it (lists stand for tuples); `KnobError` lists every fault."""
        usable, problems = cls._read_map(values)
        if problems:
            raise KnobError(problems)
        return cls(**usable)


@dataclass(frozen=True)
class DecodeKnobs(_Validated):
    """How one configuration decodes.

    Names and the three comparisons follow Diffulex (branch mbd-lms, 9d1a04e) and the paper that served it; where
    defaults of theirs differ, these are the engine's library defaults, not the shipped task settings.

    Parameters
    ----------
    block_size
        Positions per diffusion block, 1 to 512. None (the default): the model's own. Blocks lie on absolute positions,
        so a prompt whose length is no multiple shares its last block with the reply.
    buffer_size
        Consecutive blocks that may be open, 1 to 64; default 4. 1 is plain block-by-block decoding.
    schedule
        What a block accepts in a forward. "threshold" (default; SDAR: low_confidence_dynamic): every position whose
        confidence exceeds ``accept_threshold``, at least one. "count": the ``accept_count`` most confident positions.
        "steps" (SDAR: low_confidence_static): the most confident positions, as many as spread a full block over
        ``denoising_steps`` forwards, earlier ones taking the remainder.
    accept_threshold
        A position is accepted at confidence **>** this; 0 to 1, default 0.9. At 1 nothing exceeds it and one
        position at a time is accepted. Read by schedule "threshold".
    accept_count
        Positions per block and forward; at least 1 (default). Read by schedule "count".
    denoising_steps
        Forwards that a full block takes; at least 1, default 4. Read by schedule "steps".
    semi_complete_threshold
        A block must accept something only if the block before it has progress **>=** this (and always if there is
        none, or it is complete); 0 to 1, default 0.9. Progress: share of resolved positions, prompt tokens included.
        Read if ``buffer_size`` exceeds 1.
    add_block_threshold
        The next block opens once the last open one has progress **>=** this; 0 to 1, default 0.1. At most one opens
        per forward. Read if ``buffer_size`` exceeds 1.
    edit_threshold
        Also replace a resolved token of the open block, prompt tokens excepted, where the model proposes another one
        with confidence **>** this; 0 to 1, default 0: tokens stay as accepted. A full block is run again until nothing
        changes. Needs ``buffer_size`` 1.
    max_post_edit_steps
        A full block is edited in at most one more forward than this; at least 0, default 16. Read if
        ``edit_threshold`` exceeds 0.
    max_new_tokens
        Limit on the position of the reply's last token; at least 1, default 256. Decoding runs to the end of the block
        that holds the limit and the reply is cut there.
    max_forwards
        Limit on forwards, the prefill included; at least 1. None (the default): no limit. A reply that meets it says
        so in its finish reason and holds what was resolved without a gap.
    temperature
        0 (the default): the most probable token, ties to the lowest id. Above: a draw from the tempered distribution.
    top_p, top_k
        Restrict a draw to the smallest set of tokens with this probability (0 to 1, default 1: all) and to the
        ``top_k`` most probable (default 0: all). Confidence is the model's own probability of the token drawn, taken
        before temperature and filters. Read if ``temperature`` exceeds 0.
    seed
        Of the draws; at least 0 (default). Equal seeds couple configurations: in equal states they draw the same
        tokens. Read if ``temperature`` exceeds 0.
    stop_tokens
        Token ids that end a reply besides the model's own end tokens; default none.
    stop_strings
        Texts that end a reply; it is cut before the first of them. Default none.
    """

    block_size: int | None = None
    buffer_size: int = 4
    schedule: Schedule = "threshold"
    accept_threshold: float = 0.9
    accept_count: int = 1
    denoising_steps: int = 4
    semi_complete_threshold: float = 0.9
    add_block_threshold: float = 0.1
    edit_threshold: float = 0.0
    max_post_edit_steps: int = 16
    max_new_tokens: int = 256
    max_forwards: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop_tokens: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()

    _rules: ClassVar[Mapping[str, _Rule]] = {
        "block_size": _whole(1, 512, optional=True),
        "buffer_size": _whole(1, 64),
        "schedule": _choice("threshold", "count", "steps"),
        "accept_threshold": _number(0, 1),
        "accept_count": _whole(1, 512),
        "denoising_steps": _whole(1, 512),
        "semi_complete_threshold": _number(0, 1),
        "add_block_threshold": _number(0, 1),
        "edit_threshold": _number(0, 1),
        "max_post_edit_steps": _whole(0, 2**24),
        "max_new_tokens": _whole(1, 2**24),
        "max_forwards": _whole(1, 2**24, optional=True),
        "temperature": _number(0, 100),
        "top_p": _number(1e-6, 1),
        "top_k": _whole(0),
        "seed": _whole(0, 2**63 - 1),
        "stop_tokens": _TOKENS,
        "stop_strings": _TEXTS,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.edits and self.buffer_size > 1:
            raise KnobError(
                [
                    f"edit_threshold: edits one block until it is stable, so it needs buffer_size 1; found "
                    f"{self.buffer_size}; set buffer_size: 1, or leave edit_threshold out"
                ]
            )

    @classmethod
    def from_mapping(cls, knobs: Mapping[str, object], defaults: Mapping[str, object] | None = None) -> Self:
        """Make knobs from a map, missing ones from `defaults`, then from the engine's own.

        Raises
        ------
        KnobError
            With every unknown name, every value out of range, and every knob of `knobs` that the others switch off.
            Those of `defaults` may be switched off: they are meant for many configurations.
        """
        usable, problems = cls._read_map({**(defaults or {}), **knobs})
        try:
            made = cls(**usable)
        except KnobError as error:
            raise KnobError([*problems, *error.problems]) from None
        unread = made._unread()
        problems += [f"{name}: nothing reads it while {unread[name]}; remove it" for name in knobs if name in unread]
        if problems:
            raise KnobError(problems)
        return made

    def _unread(self) -> dict[str, str]:
        """Knobs that change nothing beside the others, and why."""
        numbers = {"threshold": "accept_threshold", "count": "accept_count", "steps": "denoising_steps"}
        unread = {name: f"schedule is {self.schedule}" for key, name in numbers.items() if key != self.schedule}
        if self.buffer_size == 1:
            unread |= dict.fromkeys(("semi_complete_threshold", "add_block_threshold"), "buffer_size is 1")
        if not self.edits:
            unread["max_post_edit_steps"] = "edit_threshold is 0"
        if self.temperature == 0:
            unread |= dict.fromkeys(("top_p", "top_k", "seed"), "temperature is 0")
        return unread

    def effective(self) -> dict[str, Any]:
        """Name and value of every knob that is read, in the order of the fields; equal maps decode equally.

        A threshold of 0 that switches editing off is left out.
        """
        unread = self._unread() | ({} if self.edits else {"edit_threshold": ""})
        return {
            item.name: float(value) if isinstance(item.default, float) else value
            for item in fields(self)
            if item.name not in unread
            for value in (getattr(self, item.name),)
        }

    @property
    def edits(self) -> bool:
        """Whether resolved tokens may change, so that the model is asked about them too."""
        return self.edit_threshold > 0

    @property
    def sampling(self) -> Sampling | None:
        """How tokens are drawn; None if greedy."""
        if self.temperature == 0:
            return None
        return Sampling(float(self.temperature), float(self.top_p), self.top_k, self.seed)
