"""Multi-block decoding written a second time: one request, plain lists, every forward recomputed from all tokens.

It shares no code with the engine and keeps no cache, no states and no arrays, so that it can be read against the rules
in one go. Where Diffulex (branch mbd-lms, commit 9d1a04e) decodes differently from this engine, the difference is one
named field of `Deviations`; with all of them the loop reproduces traces recorded from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

EMPTY, ACTIVE, TO_CACHE = "empty", "active", "to_cache"

Model = Callable[[int, list[int]], tuple[tuple[int, ...], float]]
"""Position and the tokens through the end of its block -> tied tokens and their confidence."""


@dataclass(frozen=True)
class Deviations:
    """What Diffulex does differently; all off is this engine."""

    tied_tokens_to_highest: bool = False
    # An end token anywhere ends the opening of blocks only; all open blocks are completed and run once more, clean.
    # Off: the request ends once nothing before its end token is unresolved.
    end_drains_buffer: bool = False
    # max_new_tokens is met when the positions of the whole buffer, empty blocks included, reach it, and then decoding
    # stops at once. Off: decoding runs to the end of the limit's block and no block opens beyond it.
    limit_counts_buffer: bool = False
    # A limit wins over an end token as finish reason. Off: the end token wins.
    limit_outranks_end: bool = False
    # Without a cap on forwards, one is derived from the speed of the first eight. Off: there is none.
    automatic_cap: bool = False
    # The reply is what stands at its positions, unresolved ones included, and is cut at max_new_tokens only if that
    # limit ended it; its end token is left out. Off: it ends at the first gap, end token or limit; the end token stays.
    reply_holds_masks: bool = False


HERE = Deviations()
DIFFULEX = Deviations(*[True] * 6)


@dataclass(frozen=True)
class Case:
    """One request. `end_ids` and `mask` belong to the model."""

    prompt: Sequence[int]
    block_size: int
    buffer_size: int
    semi_complete_threshold: float
    add_block_threshold: float
    max_new_tokens: int
    accept_threshold: float | None = None  # None: by quota alone
    quota: int = 1
    steps: int | None = None
    max_forwards: int | None = None
    end_ids: tuple[int, ...] = (62,)
    mask: int = 63
    stop_strings: tuple[str, ...] = ()  # in the text that `spell` makes


@dataclass(frozen=True)
class Forward:
    added: list[int]
    accepted: dict[int, int]
    buffer: list[tuple[int, str]]
    cached: int
    seen: tuple[int, ...]  # tokens through the last block it has to run


@dataclass
class Run:
    """What became of a request; also the state of the loop while it runs."""

    case: Case
    tokens: list[int]
    status: dict[int, str]  # of the blocks in the buffer
    base: int  # first block of the buffer
    turns: dict[int, int] = field(default_factory=dict)
    forwards: list[Forward] = field(default_factory=list)
    finish_reason: str = ""
    cap: int | None = None

    def masks(self, block: int) -> list[int]:
        size = self.case.block_size
        return [p for p in range(block * size, (block + 1) * size) if self.tokens[p] == self.case.mask]

    def progress(self, block: int) -> float:
        return (self.case.block_size - len(self.masks(block))) / self.case.block_size

    @property
    def open_blocks(self) -> list[int]:
        return [block for block, status in self.status.items() if status != EMPTY]

    @property
    def raw(self) -> list[int]:
        return self.tokens[len(self.case.prompt) :]

    def end_position(self, limit: float) -> int | None:
        """Leftmost end token of the reply before `limit`, resolved order or not."""
        for position in range(len(self.case.prompt), len(self.tokens)):
            if position < limit and self.tokens[position] in self.case.end_ids:
                return position
        return None

    def first_gap(self) -> int:
        """First unresolved position."""
        return next((p for p, token in enumerate(self.tokens) if token == self.case.mask), len(self.tokens))


def spell(tokens: Sequence[int]) -> str:
    """A text for tokens: one letter each, four different ones."""
    return "".join("abcd"[token % 4] for token in tokens)


def start(case: Case) -> Run:
    """Window of buffer_size blocks from the one that holds the end of the prompt."""
    size, length = case.block_size, len(case.prompt)
    base = length // size
    status = {base + slot: EMPTY for slot in range(case.buffer_size)}
    if length % size:
        status[base] = ACTIVE
    room = (base + case.buffer_size) * size - length
    return Run(case, [*case.prompt, *[case.mask] * room], status, base, cap=case.max_forwards)


def forward(run: Run, model: Model, rules: Deviations = HERE) -> None:
    """Run one forward of a request that is not finished."""
    case = run.case
    added = _open(run, rules)
    size = case.block_size
    running = [b for b in run.open_blocks if run.masks(b)] + [b for b, s in run.status.items() if s == TO_CACHE]
    reach = max(running, default=run.base - 1) + 1
    seen = tuple(run.tokens[: reach * size])

    before = list(run.tokens)
    accepted: dict[int, int] = {}
    for block in run.open_blocks:
        says = {}
        for position in run.masks(block):
            tied, confidence = model(position, before[: (block + 1) * size])
            says[position] = (max(tied) if rules.tied_tokens_to_highest else min(tied), confidence)
        previous = 1.0 if block == 0 else run.progress(block - 1)
        takes = _choose(run, block, says, previous)
        if takes:
            run.turns[block] = run.turns.get(block, 0) + 1
        accepted |= {position: says[position][0] for position in takes}
    for position, token in accepted.items():
        run.tokens[position] = token

    for block in [b for b, s in run.status.items() if s == TO_CACHE]:
        del run.status[block]
        run.status[block + case.buffer_size] = EMPTY
        run.tokens += [case.mask] * size
        run.base += 1
    for block in run.status:
        if run.status[block] == EMPTY or run.masks(block):
            break
        run.status[block] = TO_CACHE
    buffer = [(block, status) for block, status in run.status.items()]
    run.forwards.append(Forward(added, accepted, buffer, run.base, seen))
    _finish(run, rules)


def decode(case: Case, model: Model, rules: Deviations = HERE) -> Run:
    run = start(case)
    while not run.finish_reason:
        forward(run, model, rules)
    return run


def reply(run: Run, rules: Deviations = HERE) -> list[int]:
    case, length = run.case, len(run.case.prompt)
    if rules.reply_holds_masks:
        end = run.end_position(math.inf)
        if end is not None:
            return run.tokens[length:end]
        if run.finish_reason == "length":
            return run.raw[: case.max_new_tokens]
        return run.tokens[length : (run.base + len(run.open_blocks)) * case.block_size]
    tokens = _settled(run)
    if run.finish_reason == "stop_string":
        return next(tokens[:n] for n in range(len(tokens) + 1) if _stops(run, tokens[:n]))
    return tokens


def schedule(
    queued: Sequence[tuple[int, Run]], running: Sequence[int], max_requests: int, max_tokens: int
) -> tuple[str, list[int]]:
    """Diffulex's choice of who runs in a step: newly admitted requests alone, else the oldest running ones."""
    admitted, tokens = [], 0
    for number, run in queued:
        tokens += len(run.tokens) + run.case.block_size
        if len(admitted) == max_requests or tokens > max_tokens:
            break
        admitted.append(number)
    if admitted:
        return "prefill", admitted
    return ("decode" if running else "idle"), list(running[:max_requests])


def hashed(
    seed: int, end_rate: int, block_size: int, position: int, visible: list[int]
) -> tuple[tuple[int, ...], float]:
    """The weightless model of the recorded traces, from its definition in traces/README.md."""
    digest = sha256(f"mbd1|{seed}|{position}|{','.join(str(token) for token in visible)}".encode()).digest()

    def number(start: int, stop: int) -> int:
        return int.from_bytes(digest[start:stop], "big")

    token = 62 if number(4, 6) < end_rate else number(0, 4) % 62
    if position % 8 == 3 and token != 62 and digest[8] < 96 and number(9, 13) % 62 != token:
        return (token, number(9, 13) % 62), 0.5
    a, left = 65536 - number(6, 8), visible[-block_size:].count(63)
    h = 999 - (979 * a * a * (block_size + left)) // (2 * block_size * 65536 * 65536)
    return (token,), (16 * h + 2 * (position % 8) + 1) / 16000


def _settled(run: Run) -> list[int]:
    """The reply as far as it is certain, its end token included."""
    length = len(run.case.prompt)
    limit = length + run.case.max_new_tokens
    end = run.end_position(limit)
    return run.tokens[length : min(limit, run.first_gap(), len(run.tokens) if end is None else end + 1)]


def _stops(run: Run, tokens: list[int]) -> bool:
    text = spell([token for token in tokens if token not in run.case.end_ids])
    return any(string in text for string in run.case.stop_strings)


def _limit(run: Run, rules: Deviations) -> float:
    """Position from which on end tokens do not count."""
    return math.inf if rules.limit_counts_buffer else len(run.case.prompt) + run.case.max_new_tokens


def _open(run: Run, rules: Deviations) -> list[int]:
    """Open the first empty block of the buffer, if it may."""
    case = run.case
    empty = [block for block, status in run.status.items() if status == EMPTY]
    if not empty or run.end_position(_limit(run, rules)) is not None:
        return []
    last_allowed = (len(case.prompt) + case.max_new_tokens - 1) // case.block_size
    if not rules.limit_counts_buffer and empty[0] > last_allowed:
        return []
    opened = run.open_blocks
    may = run.progress(opened[-1]) >= case.add_block_threshold if opened else bool(run.forwards)
    if not may:
        return []
    run.status[empty[0]] = ACTIVE
    return [empty[0]]


def _choose(run: Run, block: int, says: dict[int, tuple[int, float]], previous: float) -> list[int]:
    """Positions of one block that take their token."""
    case = run.case
    takes = [p for p in says if case.accept_threshold is not None and says[p][1] > case.accept_threshold]
    quota = case.quota
    if case.steps is not None:
        share, rest = divmod(case.block_size, case.steps)
        quota = max(1, share + (1 if run.turns.get(block, 0) < rest else 0))
    if len(takes) < quota and previous >= case.semi_complete_threshold:
        takes = sorted(says, key=lambda p: (-says[p][1], p))[:quota]
    return takes


def _finish(run: Run, rules: Deviations) -> None:
    case, length, count = run.case, len(run.case.prompt), len(run.forwards)
    end = run.end_position(_limit(run, rules))
    reasons = ["stop_string"] if _stops(run, _settled(run)) else []
    if end is not None and (not run.open_blocks if rules.end_drains_buffer else run.first_gap() > end):
        reasons.append("stop")
    if rules.automatic_cap and run.cap is None and count >= 8:
        resolved = sum(len(each.accepted) for each in run.forwards)
        run.cap = max(count, math.ceil(case.max_new_tokens / max(resolved / count, 1)))
    if rules.limit_counts_buffer:
        met = len(run.tokens) - length >= case.max_new_tokens
    else:
        last = (length + case.max_new_tokens - 1) // case.block_size
        met = run.first_gap() >= (last + 1) * case.block_size
    limits = ["length"] if met else []
    if run.cap is not None and count >= run.cap:
        limits.append("max_forwards")
    reasons = limits + reasons if rules.limit_outranks_end else reasons + limits
    run.finish_reason = reasons[0] if reasons else ""
