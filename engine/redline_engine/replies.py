"""Reading replies off the rows of a walker table: tokens, text, accounting, and whether a stop string ended one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from redline_engine.stops import Detokenize, Stop, find_stop
from redline_engine.table import Rows, WalkerTable
from redline_engine.trace import FinishReason, ForwardRecord, Trace

REASONS: tuple[FinishReason, ...] = ("stop", "stop_string", "length", "max_forwards", "error")
RUNNING = -1  # number of a walker's finish reason while it has none


class Said(NamedTuple):
    """What a finished walker said.

    Parameters
    ----------
    tokens
        An end token included, never a mask; empty after an error.
    text
        Without the end token, and cut before a stop string; None without `detokenize`.
    trace
        Accounting.
    """

    tokens: list[int]
    text: str | None
    trace: Trace


class Replies:
    """What the walkers of a table have said.

    Parameters
    ----------
    table
        Whose rows to read.
    detokenize
        Token ids to text; needed for text and stop strings only.
    """

    def __init__(self, table: WalkerTable, detokenize: Detokenize | None) -> None:
        self._table = table
        self._detokenize = detokenize
        self._strings: dict[int, tuple[str, ...]] = {}
        self._stops: dict[int, Stop] = {}

    def watch(self, row: int, strings: tuple[str, ...]) -> None:
        """Look for stop strings in the text of a row from now on."""
        if strings:
            self._strings[row] = strings

    def forget(self, row: int) -> None:
        """Look no more."""
        self._strings.pop(row, None)
        self._stops.pop(row, None)

    def find_stops(self, rows: Rows) -> list[int]:
        """Return those of `rows` whose settled text holds one of their stop strings."""
        if not self._strings:
            return []
        assert self._detokenize is not None
        found = []
        for row in rows.tolist():
            if row in self._strings:
                walker = self._table.row(row)
                tokens = self._settled(row, walker)
                ends = walker["end"] < walker["settled"]
                stop = find_stop(tokens[:-1] if ends else tokens, self._strings[row], self._detokenize)
                if stop:
                    self._stops[row] = stop
                    found.append(row)
        return found

    def said(self, row: int, records: list[ForwardRecord]) -> Said:
        """Reply and accounting of a finished walker."""
        walker, size = self._table.row(row), self._table.block_size
        reason, stop = REASONS[walker["reason"]], self._stops.get(row)
        ends = stop is None and walker["end"] < walker["settled"]
        tokens = [] if reason == "error" else self._settled(row, walker)[: stop.tokens if stop else None]
        text = None
        if self._detokenize is not None:
            text = stop.text if stop else self._detokenize(tokens[:-1] if ends else tokens)
        resolved = walker["resolved"]
        opened = self._table.tokens[row, walker["prompt_length"] // size : walker["opened"]]
        trace = Trace(
            finish_reason=reason,
            forwards=walker["forwards"],
            zero_token_forwards=walker["zero_token"],
            commit_only_forwards=walker["commit_only"],
            tokens_resolved=resolved,
            reply_tokens=len(tokens),
            end_token=ends,
            tokens_after_reply=resolved - len(tokens),
            masks_left=int(np.count_nonzero(opened == self._table.mask_id)),
            records=tuple(records),
        )
        return Said(tokens, text, trace)

    def _settled(self, row: int, walker: dict[str, Any]) -> list[int]:
        """Tokens after the prompt without a gap, up to an end token or the limit."""
        end = min(walker["limit"], walker["settled"], walker["end"] + 1)
        tokens: list[int] = self._table.flat[row, walker["prompt_length"] : end].tolist()
        return tokens
