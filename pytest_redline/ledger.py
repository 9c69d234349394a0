"""The ledger: every statement made on a set of prompts, one line each, in a file that belongs into the repository.

A line is a JSON object. ``prompts`` lines describe a set of prompts, by short hashes of their ids, so that statements
on overlapping sets know of each other; ``statement`` lines say what was stated and what it was judged on. Lines are
only ever added. Each ends in a ``check`` of its own, so that edits show, and none depends on another's place, so that
git may merge two branches by keeping the lines of both. There is no time in it: equal runs write equal lines.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

from pytest_redline.certificate_schema import Reuse
from pytest_redline.closed import Closed, Probability
from pytest_redline.errors import LedgerError
from pytest_redline.paths import display, replace_file
from pytest_redline.statement import canonical

NAME = "redline.statements.jsonl"
_MEMBER = 5  # bytes of a prompt's hash: by chance, one of a million million pairs is taken for the same
_CHECK = 8  # letters of a line's own hash
_SETTLED = 60.0  # seconds after which a file that is not in place was left behind
_REMEDY = "restore the file from version control"
_CONFLICT = ("<<<<<<<", "=======", ">>>>>>>", "|||||||")


class PromptsLine(Closed):
    """A set of prompts: ``members`` is base64 of short hashes of their ids, sorted; ``prompts`` a hash of those.

    ``slice`` marks the nonce that drew it from a pool, where one did.
    """

    left_out: ClassVar[tuple[str, ...]] = ("slice",)

    prompts: str
    n: int
    members: str
    slice: str | None = None


class StatementLine(Closed):
    """A statement by its hash, and what it was judged on; ``outcomes`` is null until it was.

    ``configurations`` maps labels to what identifies a configuration beside its reference (``reuse.identities``),
    ``outcomes`` is a hash of who was right where. ``reuse`` is what the ledger said when the statement was made.
    ``passed`` is all that a blind gate has shown, and not there for a statement whose outcomes were shown.
    """

    left_out: ClassVar[tuple[str, ...]] = ("passed",)

    statement: str
    grid: str
    prompts: str
    reference: str
    configurations: dict[str, str]
    alpha: Probability
    delta: Probability
    reuse: Reuse
    outcomes: str | None
    passed: bool | None = None


@dataclass(frozen=True)
class Ledger:
    """What a ledger holds: sets of prompts by their hash, and statements in the order in which they were made."""

    path: Path
    sets: dict[str, PromptsLine]
    statements: tuple[StatementLine, ...]

    def on(self, prompts: PromptsLine) -> tuple[StatementLine, ...]:
        """Statements on a set that has a prompt in common with this one."""
        wanted = members(prompts)
        touched = {name for name, each in self.sets.items() if name == prompts.prompts or members(each) & wanted}
        return tuple(each for each in self.statements if each.prompts in touched)

    def with_lines(self, lines: Sequence[str], source: Path) -> Ledger:
        """Add lines that another place kept; those that are there already change nothing.

        Raises
        ------
        LedgerError
            As in `read_ledger`.
        """
        return _parse(source, lines, self)


def ledger_path(grid: Path) -> Path:
    """Where the ledger of a grid file is: beside it, or else in the nearest folder above, up to the repository's root.

    One that is not there yet is beside the grid file.
    """
    folder = Path(os.path.abspath(grid)).parent
    above = (folder, *folder.parents)
    root = next((number for number, each in enumerate(above) if (each / ".git").exists()), 0)
    return next((each / NAME for each in above[: root + 1] if (each / NAME).exists()), folder / NAME)


def read_ledger(path: Path) -> Ledger:
    """Read a ledger; one that is not there holds nothing.

    Raises
    ------
    LedgerError
        It cannot be read, a line of it is no line of a ledger or was edited, or two of them contradict each other.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return Ledger(path, {}, ())
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"{display(path)}: cannot be read ({error}); {_REMEDY}") from None
    if text and not text.endswith("\n"):
        raise LedgerError(f"{display(path)}: the last line is cut off; {_REMEDY}")
    return _parse(path, text.splitlines(), Ledger(path, {}, ()))


def _parse(path: Path, lines: Sequence[str], base: Ledger) -> Ledger:
    """Add lines of a file to a ledger."""
    sets, statements = dict(base.sets), list(base.statements)
    problems = []
    for number, line in enumerate(lines, start=1):
        try:
            found = _line(line)
        except ValueError as error:
            problems.append(f"{display(path)}:{number}: {error}")
            continue
        if isinstance(found, PromptsLine):
            sets[found.prompts] = found
        elif problem := _contradiction(found, statements, sets):
            problems.append(f"{display(path)}:{number}: {problem}; {_REMEDY}")
        else:
            _enter(found, statements)
    if problems:
        raise LedgerError(problems)
    return Ledger(base.path, sets, tuple(statements))


def _line(text: str) -> PromptsLine | StatementLine:
    """Read one line; ValueError says what is wrong with it."""
    if text.startswith(_CONFLICT):
        raise ValueError("a merge conflict; keep the lines of both sides and remove the marks")
    try:
        data = json.loads(text)
        check = data.pop("check")
        model = PromptsLine if "members" in data else StatementLine
        found = model.model_validate(data)
        if isinstance(found, PromptsLine):
            members(found)
    except (ValidationError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise ValueError(f"no line of a ledger; {_REMEDY}") from None
    if check != _check(data):
        raise ValueError(f"was edited after it was written; {_REMEDY}")
    return found


def _contradiction(
    found: StatementLine, statements: Sequence[StatementLine], sets: dict[str, PromptsLine]
) -> str | None:
    if found.prompts not in sets:
        return f"statement {found.statement[:12]} is on prompts that no line before it describes"
    twin = next((each for each in statements if each.statement == found.statement), None)
    if twin is not None and (twin.prompts, twin.configurations) != (found.prompts, found.configurations):
        return f"statement {found.statement[:12]} is there already, with other prompts or configurations"
    return None


def _enter(found: StatementLine, statements: list[StatementLine]) -> None:
    """Add a statement; one that was stated before it had outcomes gets those of its first verdict, and keeps its place.

    Two branches may both have judged one statement on the same outcomes: the first line counts. But both do if one gate
    was blind and the other not, or if two blind ones had unequal delta: the second may have told more.
    """
    told = (found.statement, found.passed is None, None if found.passed is None else found.delta)
    for place, each in enumerate(statements):
        if (each.statement, each.passed is None, None if each.passed is None else each.delta) == told:
            if found.outcomes in (None, each.outcomes):
                return
            if each.outcomes is None:
                statements[place] = found
                return
    statements.append(found)


def append(ledger: Ledger, prompts: Iterable[PromptsLine], statements: Iterable[StatementLine]) -> bool:
    """Add lines to a ledger's file, all or none; returns whether anything was new. Hold ``locked`` around it.

    Raises
    ------
    LedgerError
        The file cannot be written.
    """
    return _add(ledger.path, [*map(line_of, prompts), *map(line_of, statements)])


def _add(path: Path, lines: Iterable[str]) -> bool:
    """Add what is new of the lines to a file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        content = b""
    except OSError as error:
        raise _unwritable(path, error) from None
    there = set(content.decode("utf-8").splitlines())
    new = [line for line in dict.fromkeys(lines) if line not in there]
    if not new:
        return False
    try:
        replace_file(path.resolve(), content + "".join(f"{line}\n" for line in new).encode("utf-8"))
    except OSError as error:
        raise _unwritable(path, error) from None
    return True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process of this machine at a time; the lock is no file of the repository.

    What a writer left that was killed is taken over first.
    """
    from filelock import FileLock

    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
    user = os.getuid() if hasattr(os, "getuid") else ""
    with FileLock(Path(tempfile.gettempdir()) / f"redline-{user}-{name}.lock"):
        _take_over(path)
        yield


def _take_over(path: Path) -> None:
    """Add the lines of files that `append` had written and not put in place: what stands in them may have been read."""
    place = path.resolve()
    for left in sorted(place.parent.glob(f".{place.name}.????????")):
        try:
            lines = left.read_bytes().decode("utf-8").splitlines(keepends=True)
            whole = [line.removesuffix("\n") for line in lines if line.endswith("\n")]
            read_ledger(path).with_lines(whole, left)  # refused where a line is none, or contradicts what is there
            _add(path, whole)
            if time.time() - left.stat().st_mtime > _SETTLED:  # else another machine may be about to put it in place
                left.unlink()
        except (OSError, ValueError, LedgerError):
            continue


def prompts_line(ids: Sequence[str], drawn_by: str | None = None) -> PromptsLine:
    """Describe a set of prompts by their ids, and by the mark of the nonce that drew them."""
    packed = b"".join(sorted(map(short_hash, ids)))
    return PromptsLine(
        prompts=hashlib.sha256(packed).hexdigest(),
        n=len(ids),
        members=base64.b64encode(packed).decode("ascii"),
        slice=drawn_by,
    )


def short_hash(prompt: str) -> bytes:
    """Hash by which a prompt is a member of a set."""
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).digest()[:_MEMBER]


def members(line: PromptsLine) -> frozenset[bytes]:
    """Short hashes of the prompts of a set."""
    packed = base64.b64decode(line.members, validate=True)
    return frozenset(packed[start : start + _MEMBER] for start in range(0, len(packed), _MEMBER))


def line_of(found: PromptsLine | StatementLine) -> str:
    """Write a line, without its line break."""
    data = found.model_dump(mode="json")
    return json.dumps({**data, "check": _check(data)}, ensure_ascii=True, allow_nan=False, separators=(", ", ": "))


def _check(data: Any) -> str:
    return hashlib.sha256(canonical(data)).hexdigest()[:_CHECK]


def _unwritable(path: Path, error: OSError) -> LedgerError:
    return LedgerError(
        f"{display(path)}: a new statement cannot be recorded ({error.strerror or error}), and what is not recorded is "
        "not certified; make the folder writable, or run once where it is and commit the file"
    )
