"""Reading replies off the rows of a walker table: tokens, text, accounting, and whether a stop string ended one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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

    def forget(self, rows: Rows) -> None:
        """Look no more."""
        if self._strings:
            for row in rows.tolist():
                self._strings.pop(row, None)
                self._stops.pop(row, None)

    @property
    def watches(self) -> bool:
        """Whether there is a row with stop strings."""
        return bool(self._strings)

    def find_stops(self, rows: Rows) -> list[int]:
        """Return places in `rows` of those whose settled text holds one of their stop strings."""
        assert self._detokenize is not None
        walkers, flat = self._table.walkers.take(rows), self._table.flat
        columns = (rows, walkers["prompt_length"], *_settled(walkers))
        found = []
        for place, (row, start, end, ends) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            if row in self._strings:
                stop = find_stop(flat[row, start : end - ends].tolist(), self._strings[row], self._detokenize)
                if stop:
                    self._stops[row] = stop
                    found.append(place)
        return found

    def said(self, rows: Rows, records: Mapping[int, Sequence[ForwardRecord]]) -> list[Said]:
        """Reply and accounting of finished walkers; `records` are those of rows that keep them."""
        walkers = self._table.walkers.take(rows)
        columns = [
            rows,
            self._table.flat.take(rows, axis=0),
            *(walkers[name] for name in ("reason", "prompt_length")),
            *_settled(walkers),
            *(walkers[name] for name in ("forwards", "zero_token", "commit_only", "resolved")),
            self._table.left[rows].sum(axis=1),
        ]
        made = []
        for row, line, number, start, settled, ends, forwards, zero_token, commit_only, resolved, masks_left in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            reason, stop = REASONS[number], self._stops.get(row)
            end_token = ends and stop is None
            tokens = [] if reason == "error" else line[start:settled][: stop.tokens if stop else None]
            text = None
            if self._detokenize is not None:
                text = stop.text if stop else self._detokenize(tokens[:-1] if end_token else tokens)
            trace = Trace(
                finish_reason=reason,
                forwards=forwards,
                zero_token_forwards=zero_token,
                commit_only_forwards=commit_only,
                tokens_resolved=resolved,
                reply_tokens=len(tokens),
                end_token=end_token,
                tokens_after_reply=resolved - len(tokens),
                masks_left=masks_left,
                records=tuple(records.get(row, ())),
            )
            made.append(Said(tokens, text, trace))
        return made


def _settled(walkers: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Ends of the replies as far as they have no gap, at most the limit, and whether an end token is the last one."""
    ends: NDArray[np.bool_] = walkers["end"] < walkers["settled"]
    return np.minimum(np.minimum(walkers["limit"], walkers["settled"]), walkers["end"] + 1), ends
