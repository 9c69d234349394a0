"""Reading replies off the rows of a walker table: tokens, text, accounting, and whether a stop string ended one."""

from __future__ import annotations

from redline_engine.stops import Detokenize, Stop, find_stop
from redline_engine.table import Rows, WalkerTable
from redline_engine.trace import FinishReason, ForwardRecord, Trace

REASONS: tuple[FinishReason, ...] = ("stop", "stop_string", "length", "max_forwards", "error")
RUNNING = -1  # number of a walker's finish reason while it has none


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
                tokens = self._settled(row)
                stop = find_stop(tokens[:-1] if self._ends(row) else tokens, self._strings[row], self._detokenize)
                if stop:
                    self._stops[row] = stop
                    found.append(row)
        return found

    def tokens(self, row: int) -> list[int]:
        """Tokens of the reply, an end token included, never a mask; empty after an error."""
        if self._table.walkers["reason"][row] == REASONS.index("error"):
            return []
        settled = self._settled(row)
        return settled[: self._stops[row].tokens] if row in self._stops else settled

    def text(self, row: int) -> str:
        """Text of the reply: without its end token, and cut before a stop string."""
        if row in self._stops:
            return self._stops[row].text
        assert self._detokenize is not None
        tokens = self.tokens(row)
        return self._detokenize(tokens[:-1] if self._ends(row) else tokens)

    def trace(self, row: int, records: list[ForwardRecord]) -> Trace:
        """Accounting of a finished walker."""
        walker, size = self._table.walkers[row], self._table.block_size
        reply_tokens, resolved = len(self.tokens(row)), int(walker["resolved"])
        opened = self._table.tokens[row, int(walker["prompt_length"]) // size : int(walker["opened"])]
        return Trace(
            finish_reason=REASONS[walker["reason"]],
            forwards=int(walker["forwards"]),
            zero_token_forwards=int(walker["zero_token"]),
            commit_only_forwards=int(walker["commit_only"]),
            tokens_resolved=resolved,
            reply_tokens=reply_tokens,
            end_token=self._ends(row),
            tokens_after_reply=resolved - reply_tokens,
            masks_left=int((opened == self._table.mask_id).sum()),
            records=tuple(records),
        )

    def _settled(self, row: int) -> list[int]:
        """Tokens after the prompt without a gap, up to an end token or the limit."""
        walker = self._table.walkers[row]
        end = min(int(walker["limit"]), int(walker["settled"]), int(walker["end"]) + 1)
        tokens: list[int] = self._table.flat(row)[int(walker["prompt_length"]) : end].tolist()
        return tokens

    def _ends(self, row: int) -> bool:
        """Whether the reply ends with an end token."""
        walker = self._table.walkers[row]
        return row not in self._stops and bool(walker["end"] < walker["settled"])
