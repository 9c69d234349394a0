"""Rows of a recording, judged one by one: whose they are, what they say of a prompt, and what of a configuration."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, Literal, NamedTuple

from pytest_redline.alignment import Records, Rows
from pytest_redline.errors import OutcomesError
from pytest_redline.grid import Columns
from pytest_redline.outcomes import LARGEST, SMALLEST, PromptList, measurable, quoted, shown_id
from pytest_redline.sources.table import Faults, Row, format_of, read_rows, suggestion
from pytest_redline.sources.values import (
    MISSING,
    NO_GROUP,
    alike,
    as_flag,
    as_id,
    as_number,
    as_text,
    joined,
    lookup,
    output_hash,
    verdict_of,
)
from pytest_redline.text import on_one_line

PLACE: Final = "{config}"  # stands for the label of a configuration in a column path
COSTS: Final = ("tokens", "forwards")  # read wherever they are recorded


class _Note(NamedTuple):
    """A column that says something of the prompt."""

    attribute: Literal["texts", "hashes", "groups", "clusters"]  # of Rows
    path: str
    required: bool


class _Measure(NamedTuple):
    """A column of numbers, and what was read of it."""

    name: str
    path: str
    required: bool
    values: array[float]


@dataclass
class _Target:
    """One configuration while its rows are read: what was read, and where its columns are."""

    record: Records
    correct: str
    output: str | None
    measures: list[_Measure]


@dataclass
class _Tally:
    """A fault that recurs from row to row: where it was met first, and how often."""

    line: int
    found: str
    remedy: str
    count: int = 1


class Reader:
    """Reads a recording file by file into `Records`; keeps the faults of rows until `finish`.

    ``wide``: each row holds every configuration. What ``prompts`` says of the prompts, the recording need not.
    """

    def __init__(
        self, columns: Columns, labels: Sequence[str], needed: Sequence[str], prompts: PromptList | None, *, wide: bool
    ) -> None:
        def listed(what: str) -> bool:
            return getattr(prompts, what, None) is not None

        self.columns = columns
        self.labels = labels
        self.wide = wide
        self.warnings: list[str] = []
        self.faults = Faults()
        self.targets: list[_Target] = []
        self.required_measures = {*needed, *columns.measures}
        # In a row that holds every configuration, a column with a usual name would be the same for each of them.
        usual = () if wide else COSTS
        self.measures = {name: columns.measures.get(name, name) for name in (*needed, *columns.measures, *usual)}
        self.output = columns.output if wide else columns.output or "output"
        self.notes = [
            _Note("texts", columns.prompt_text or "prompt_text", columns.prompt_text is not None),
            _Note("hashes", columns.prompt_hash or "prompt_hash", columns.prompt_hash is not None),
            _Note("groups", columns.group or "group", columns.group is not None and not listed("groups")),
        ]
        if columns.cluster is not None:
            self.notes.append(_Note("clusters", columns.cluster, not listed("clusters")))
        self.one_object: dict[str, str] = {}  # each text that recurs, once
        self.parts: dict[str, tuple[str, ...]] = {}  # what each compound id was joined from
        self.not_right: set[object] = set()  # some of the values that were read as wrong
        self.name = ""  # of the file at hand
        self.tallies: dict[str, _Tally] = {}  # of the file at hand

    def read(self, name: str, data: bytes, label: str | None) -> None:
        """Read one file: that of ``label``, or of all configurations."""
        textual = format_of(name).kind == "csv"
        judge = verdict_of(self.columns.correct, textual=textual)
        shared = Rows(name, None) if self.wide else None
        held = self.labels if label is None else [label]
        by_label = {
            each: self._target(each, shared or Rows(name, each), self.wide or label is not None) for each in held
        }
        everyone = list(by_label.values())
        self.targets += everyone
        self.name, self.tallies, notes = name, {}, self.notes
        first = True
        for line, row in read_rows(name, data, self.faults):
            if first:
                first = False
                if textual:  # the header holds for every row, so optional columns that are not here never come
                    notes = [note for note in notes if note.required or note.path in row]
                    for target in everyone:
                        target.measures = [each for each in target.measures if each.required or each.path in row]
                        if self.columns.output is None and target.output not in row:
                            target.output = None
                if self.wide:
                    self._warn_of_undeclared(row, judge)
            if self.wide:
                targets = everyone
            else:
                whose = self._whose(row, line, label)
                if whose not in by_label:
                    continue
                targets = [by_label[whose]]
            self._note(targets[0].record.rows, row, line, notes)
            for target in targets:
                self._judge(target, row, line, judge, textual)
        for tally in self.tallies.values():
            rows = "row" if tally.count == 2 else "rows"
            more = f", here and in {tally.count - 1:,} more {rows}" if tally.count > 1 else ""
            self.faults.add(f"{name}:{tally.line}{tally.found}{more}; {tally.remedy}")

    def finish(self) -> list[Records]:
        """Return what was read.

        Raises
        ------
        OutcomesError
            Some row had a fault, or not one value of the whole recording is what counts as right.
        """
        self.faults.check()
        records = [target.record for target in self.targets]
        correct = self.columns.correct
        if correct.equals is not None or correct.threshold is not None:
            rule = f"at or over {correct.threshold}" if correct.equals is None else f"equal to {quoted(correct.equals)}"
            if not any(1 in each.correct for each in records):
                found = ", ".join(sorted(map(quoted, self.not_right))[:5])
                raise OutcomesError(
                    f"{records[0].rows.file}: no value of {correct.path!r} is {rule}; found are {found}; when nothing "
                    "is right nothing can be broken, so correct columns.correct"
                )
            if not any(0 in each.correct for each in records):
                self.warnings.append(
                    f"{records[0].rows.file}: every value of {correct.path!r} is {rule}, so every answer of every "
                    "configuration counts as right; if that is not so, correct columns.correct"
                )
        for record in records:
            n = len(record.rows.prompts)
            for name, values in list(record.measures.items()):
                if len(values) < n:
                    del record.measures[name]
                    if values:
                        self.warnings.append(
                            f"{record.rows.file}: {name} is recorded for {len(values):,} of {n:,} rows of "
                            f"{record.label}; it is left out"
                        )
            if len(record.outputs) < n:
                record.outputs = array("Q")
        return records

    def _target(self, label: str, rows: Rows, replaced: bool) -> _Target:
        def place(path: str) -> str:
            return path.replace(PLACE, label) if replaced else path

        measures = [
            _Measure(name, place(path), name in self.required_measures, array("d"))
            for name, path in self.measures.items()
        ]
        record = Records(label, rows, measures={each.name: each.values for each in measures})
        output = None if self.output is None else place(self.output)
        return _Target(record, place(self.columns.correct.path), output, measures)

    def _whose(self, row: Row, line: int, label: str | None) -> str | None:
        """Return the configuration that a row belongs to, None where it names none."""
        path = self.columns.config
        found = lookup(row, path)
        named = as_id(found)
        if label is not None:
            if found is MISSING and "config" in self.columns.declared:
                self._absent(
                    path, row, line, "map columns.config, or leave it out: each configuration has its own file"
                )
            elif named is not None and named != label:
                self._tally(
                    line,
                    f" {path}: {quoted(named)} in the recording of {label}",
                    f"allowed is {quoted(label)}; name the right file, or, if this column holds no label, map "
                    "columns.config to one that does",
                )
            return label
        if found is MISSING:
            self._absent(path, row, line, "map columns.config, or name one file per configuration with `log:`")
        elif named is None:
            self._tally(line, f" {path}: {quoted(found)} is no label", "allowed are the labels of the grid; correct it")
        elif named not in self.labels:
            self._tally(
                line,
                f" {path}: {quoted(named)} is not a configuration of the grid{suggestion(named, self.labels)}",
                "every configuration that was tried counts; declare it, or correct the label",
            )
        return named

    def _note(self, rows: Rows, row: Row, line: int, notes: Sequence[_Note]) -> None:
        """Keep what a row says of its prompt."""
        rows.lines.append(line)
        rows.prompts.append(self._prompt(row, line))
        for attribute, path, required in notes:
            text = as_text(lookup(row, path))
            if text is None and required:
                self._absent(path, row, line, "give every row one, or leave it out of columns")
            if attribute in ("groups", "clusters") and text is not None and not on_one_line(text):
                self.faults.add(f"{self.name}:{line} {path}: {quoted(text)} {NO_GROUP}")
            values: list[str | None] = getattr(rows, attribute)
            values.append(None if text is None else self.one_object.setdefault(text, text))

    def _prompt(self, row: Row, line: int) -> str:
        parts = []
        for path in self.columns.prompt:
            found = lookup(row, path)
            part = as_id(found)
            if found is MISSING:
                self._absent(path, row, line, "map columns.prompt to the column that holds the prompt's id")
            elif part is None:
                self.faults.add(
                    f"{self.name}:{line} {path}: {quoted(found)} is no prompt id; allowed are texts that are not "
                    "blank, and integers; give every prompt one"
                )
            parts.append(part or "")
        prompt = joined(parts)
        if len(parts) > 1 and (known := self.parts.setdefault(prompt, tuple(parts))) != tuple(parts):
            self.faults.add(
                f"{self.name}:{line}: {quoted(parts)} and {quoted(known)} would both be prompt {shown_id(prompt)}; ids "
                "are joined by a slash; choose columns whose values hold none"
            )
        return self.one_object.setdefault(prompt, prompt)

    def _judge(
        self, target: _Target, row: Row, line: int, judge: Callable[[object], bool | None], textual: bool
    ) -> None:
        """Keep what a row says of a configuration: verdict, measures, answer."""
        record = target.record
        found = lookup(row, target.correct)
        verdict = judge(found)
        if self.columns.correct.score:
            score = as_number(found, textual)
            verdict = None if score is None or not 0 <= score <= 1 else score == 1
            record.scores.append(0.0 if verdict is None or score is None else score)
        if found is MISSING:
            self._absent(target.correct, row, line, "map columns.correct to the column that holds the verdict")
        elif verdict is None:
            self.faults.add(f"{self.name}:{line} {target.correct}: {quoted(found)} {self._verdicts(found)}")
        elif not verdict and len(self.not_right) < 5:
            self.not_right.add(found)
        record.correct.append(bool(verdict))
        for name, path, required, values in target.measures:
            found = lookup(row, path)
            if found is MISSING:
                if required:
                    self._absent(path, row, line, f"map {name} under columns, or write `cost: unknown`")
                continue
            flag = name in self.columns.flags
            number = as_flag(found, textual) if flag else as_number(found, textual)
            if number is None or not measurable(number):
                self.faults.add(
                    f"{self.name}:{line} {path}: {quoted(found)} is neither yes nor no; allowed are true/false and "
                    "1/0; correct it"
                    if flag
                    else f"{self.name}:{line} {path}: {quoted(found)} is no measurement; allowed are 0 and numbers "
                    f"from {SMALLEST:g} to {LARGEST:g}; correct it, or leave the column out"
                )
            else:
                values.append(number)
        if target.output is not None:
            found = lookup(row, target.output)
            if found is not MISSING and found is not None:  # an empty answer is an answer
                record.outputs.append(output_hash(found if isinstance(found, str) else as_text(found) or ""))
            elif self.columns.output is not None:
                self._absent(target.output, row, line, "give every row one, or leave it out of columns")

    def _verdicts(self, found: object) -> str:
        correct = self.columns.correct
        if correct.score:
            return "is no score; allowed are numbers from 0 to 1; correct it"
        if correct.threshold is not None:
            return f"cannot be compared with the threshold {correct.threshold}; allowed are finite numbers; correct it"
        if correct.equals is not None and alike(found, correct.equals):
            return (
                f"is {quoted(correct.equals)} in another spelling; allowed is one spelling of what is right; record it "
                "in that of columns.correct"
            )
        if correct.equals is not None:
            return (
                f"cannot be compared with {quoted(correct.equals)}; allowed are text, number, true, false; correct it"
            )
        return (
            "is neither right nor wrong; allowed are true/false and 1/0; record that, or say in columns.correct what "
            "counts as right: {column: ..., threshold: NUMBER} or {column: ..., equals: VALUE}"
        )

    def _warn_of_undeclared(self, row: Row, judge: Callable[[object], bool | None]) -> None:
        """Warn of configurations that a wide recording seems to hold beside the declared ones.

        A warning, not a refusal as in the other shapes: the columns of a wide row need not all be configurations.
        """
        path = self.columns.correct.path
        head, _, tail = path.partition(PLACE)
        ends = (tail, "") if tail.startswith(".") else (tail,)  # a dotted tail may also lie below the column
        found: list[str] = []
        for key, end in product(row, ends):
            label = key[len(head) : len(key) - len(end)]
            if head + label + end != key or label in (*self.labels, *found, ""):
                continue
            if judge(lookup(row, path.replace(PLACE, label))) is not None:
                found.append(label)
        if found:
            self.warnings.append(
                f"{self.name}: seems to hold configurations that the grid does not declare: {', '.join(found)}; every "
                "configuration that was tried counts; declare them"
            )

    def _absent(self, path: str, row: Row, line: int, remedy: str) -> None:
        columns = list(row)
        named = ", ".join(map(quoted, columns[:12])) + (" and more" if len(columns) > 12 else "")
        if lookup(row, path) is MISSING:
            found = f": no column {quoted(path)}{suggestion(path, columns)}"
        else:
            found = f": no value in {quoted(path)}"
        self._tally(line, found, f"columns here are {named}; {remedy}")

    def _tally(self, line: int, found: str, remedy: str) -> None:
        tally = self.tallies.get(found)
        if tally is None:
            self.tallies[found] = _Tally(line, found, remedy)
        else:
            tally.count += 1
