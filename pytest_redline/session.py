"""What one pytest session makes of all its grids together; the exit status is decided here.

Items are judged where they run, which may be workers of pytest-xdist. Their reports bring the certificates to the
controller, and only the controller judges what no item judged, writes files and prints (``publish.py``). Which grids
and candidates the workers met they write to a folder that the controller gives them, as soon as they have collected:
a worker that dies later loses nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_redline.errors import RedlineError
from pytest_redline.options import Options
from pytest_redline.paths import is_grid, replace_file

if TYPE_CHECKING:
    from pytest_redline.certificate_schema import Certificate
    from pytest_redline.gate import Live

_PATH_KEY = "redline_path"  # attribute of a grid file's CollectReport
REPORT_KEY = "redline"  # attribute of a TestReport that holds what the controller needs, in JSON types
_BOOK_KEY = "redline_book"  # of a worker's input: where it writes what it met
_RUN_KEY = "redline_run"  # of a worker's input: name of the controller's run
_GREEN = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


@dataclass
class GridRecord:
    """What is known of one grid file."""

    path: Path
    certificate: Certificate | None = None
    lines: Mapping[str, int] = field(default_factory=dict)  # label -> line of the grid file
    selected: set[str] = field(default_factory=set)  # labels whose items were to run
    failed: dict[str, bool] = field(default_factory=dict)  # label -> did the report of its verdict fail
    changed: bool = False  # outcomes, grid or serving file, while the session ran
    passed: bool | None = None  # what a blind gate says, and all of it
    said: tuple[str, ...] = ()  # lines about a blind gate
    refusal: str = ""  # why it cannot be judged, one problem a line
    problems: list[str] = field(default_factory=list)  # why the gate is not passed, beyond what items report


class Session:
    """The session's book of grids and verdicts."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.options = Options.of(config)
        self.records: dict[str, GridRecord] = {}
        self.problems: list[str] = []
        self.written: set[Path] = set()  # certificates
        self.least: pytest.ExitCode | None = None  # exit status that nothing may turn green any more
        self.book: Path | None = None  # where workers write what they met
        self.news: dict[Path, str] = {}  # of statements, by grid file
        self.name: str = getattr(config, "workerinput", {}).get(_RUN_KEY) or uuid.uuid4().hex

    @property
    def is_worker(self) -> bool:
        """Does a controller of pytest-xdist decide instead."""
        return hasattr(self.config, "workerinput")

    # -- while tests are collected and run ----------------------------------------------------------------------

    def collect(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Make a collector of a grid file, and remember it even if all its items are deselected.

        pytest offers every file of a folder, also when only one of them was asked for: the others are not remembered.
        """
        if not is_grid(file_path):
            return None
        from pytest_redline.blind_items import BlindFile
        from pytest_redline.items import GridFile

        if any(parent.session.isinitpath(path) for path in (file_path, *file_path.parents)):
            self.record(str(file_path))
        kind = BlindFile if self.options.blind else GridFile
        return kind.from_parent(parent, path=file_path)

    def record(self, path: str) -> GridRecord:
        """Record of a grid file, made on first use."""
        return self.records.setdefault(path, GridRecord(Path(path)))

    def collected(self, session: pytest.Session) -> None:
        """Note which candidates are to run; a worker tells its controller."""
        if not self.records:
            return
        from pytest_redline.items import CandidateItem

        for item in session.items:
            if isinstance(item, CandidateItem):
                self.record(str(item.path)).selected.add(item.configuration.label)
        if self.is_worker:
            met = {path: sorted(record.selected) for path, record in self.records.items()}
            workerinput = self.config.workerinput  # type: ignore[attr-defined]
            replace_file(Path(workerinput[_BOOK_KEY]) / workerinput["workerid"], json.dumps(met).encode())

    def start_worker(self, node: Any) -> None:
        """Tell a worker of pytest-xdist where to write what it meets."""
        if self.book is None:
            self.book = Path(tempfile.mkdtemp(prefix="redline-"))
        node.workerinput[_BOOK_KEY] = str(self.book)
        node.workerinput[_RUN_KEY] = self.name

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Generator[None, pytest.CollectReport, Any]:
        """Write the path into the report of a grid file: its node id does not say it outside the root folder."""
        report = yield
        if is_grid(collector.path):
            setattr(report, _PATH_KEY, str(collector.path))
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note why a grid file cannot be read."""
        record = self.records.get(getattr(report, _PATH_KEY, ""))
        if report.failed and record is not None:
            record.refusal = str(report.longrepr)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the verdict that a report brings, or why there is none."""
        payload = getattr(report, REPORT_KEY, None)
        if payload is None or self.is_worker:
            return
        from pytest_redline.certificate_schema import Certificate

        record = self.record(payload["path"])
        if "passed" in payload:
            record.passed = payload["passed"]
            record.said = record.said or tuple(payload["said"])  # a run again of the item has no news
            record.failed[""] = report.failed
            return
        if "refusal" in payload:
            record.refusal = payload["refusal"]
            return
        if "certificate" in payload:
            record.lines = payload["lines"]
            if record.certificate is None:
                record.certificate = Certificate.model_validate_json(payload["certificate"])
        record.failed[payload["label"]] = report.failed
        if record.certificate is not None and payload["digest"] != record.certificate.digest:
            record.changed = True

    def finish_report(self, item: pytest.Item, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
        """Let a candidate, or a blind gate, decide its own report."""
        if self.records:
            from pytest_redline.blind_items import BlindItem
            from pytest_redline.items import CandidateItem

            if isinstance(item, CandidateItem | BlindItem):
                item.finish_report(report, call)

    @staticmethod
    def status(report: pytest.TestReport) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
        """Category, letter and word of a candidate's outcome; None leaves it to pytest."""
        if not hasattr(report, REPORT_KEY) or report.when != "call" or "passed" in getattr(report, REPORT_KEY):
            return None
        if report.passed:
            return "passed", ".", ("CERTIFIED", {"green": True})
        if report.failed:
            worse = "worse_than_noise" in getattr(report, REPORT_KEY)
            return "failed", "F", ("WORSE THAN NOISE" if worse else "NOT CERTIFIED", {"red": True})
        if report.skipped and getattr(report, REPORT_KEY)["verdict"] == "not needed":
            return "not needed", "u", ("NOT NEEDED", {"yellow": True})
        if report.skipped:
            return "not required", "n", ("NOT REQUIRED", {"yellow": True})
        return None

    # -- at the end ---------------------------------------------------------------------------------------------

    def finish(self, session: pytest.Session) -> None:
        """Judge what no item judged, write files, and decide the least exit status. Nothing unjudged may end green."""
        if self.is_worker:
            return
        self.read_book()
        if self.options.given and not self.records:
            self.problems.append(
                f"{', '.join(self.options.given)} given, but no grid was collected; a grid is a file named "
                "redline.yaml or *.redline.yaml (or .yml) under the paths that pytest was given"
            )
            self.least = pytest.ExitCode.USAGE_ERROR
        elif not self.config.option.collectonly:
            complete = session.exitstatus in _GREEN
            for record in self.records.values():
                if self.options.blind:
                    self.check_blind(record, complete)
                else:
                    self.judge(record, complete)
            if self.records and not self.options.partial:
                from pytest_redline.publish import write

                write(self)
            if self.problems or any(record.problems or any(record.failed.values()) for record in self.records.values()):
                self.least = pytest.ExitCode.TESTS_FAILED
        session.exitstatus = self.at_least(session.exitstatus)

    def at_least(self, status: int | pytest.ExitCode) -> int | pytest.ExitCode:
        """Exit status that a session may end with, where it would end with another."""
        return self.least if self.least is not None and status in _GREEN else status

    def read_book(self) -> None:
        """Read what workers wrote."""
        if self.book is None:
            return
        for page in sorted(self.book.iterdir()):
            if not page.name.startswith("."):
                for path, labels in json.loads(page.read_bytes()).items():
                    self.record(path).selected.update(labels)
        shutil.rmtree(self.book, ignore_errors=True)

    def judge(self, record: GridRecord, complete: bool) -> None:
        """Find required candidates that are not certified and whose item did not run, or was made to pass.

        Where no item of the grid ran, its verdicts come from the known outcomes, if the session is ``complete``: one
        that already failed or was interrupted needs no further reason. A partial run judges what was selected only.
        """
        if record.certificate is None and complete and not self.options.partial:
            self.judge_from_known_outcomes(record)
        if record.certificate is not None and not record.changed:
            record.changed = files_changed(record.path, record.certificate)
        if record.changed:
            record.problems.append(
                f"{self.shown(record)}: grid, outcomes, prompts or serving file changed while the session ran, so no "
                "certificate is written"
            )
        failing: tuple[str, ...] = record.certificate.failing if record.certificate is not None else ()
        unseen = [label for label in failing if label not in record.failed]
        if self.options.partial:
            unseen = sorted(record.selected - set(record.failed)) if complete else []
        passed = [label for label in failing if record.failed.get(label) is False]
        if self.options.partial:
            record.problems += self.named(record, "selected and never judged", unseen)
        else:
            record.problems += self.unpassed(record, unseen, "though not among the tests that ran")
        record.problems += self.unpassed(record, passed, "though its test did not fail")

    def check_blind(self, record: GridRecord, complete: bool) -> None:
        """Find a blind gate that was not judged, or whose test was made to pass."""
        if record.passed is None and complete:
            record.problems.append(f"{self.shown(record)}: the blind gate was not judged; its test did not run")
        if record.passed is False and not any(record.failed.values()):
            record.problems.append(f"{self.shown(record)}: the blind gate is not passed, though its test did not fail")

    def unpassed(self, record: GridRecord, labels: Sequence[str], though: str) -> list[str]:
        """Say why the gate does not pass these candidates."""
        worse = record.certificate.worse_than_noise if record.certificate is not None else ()
        return [
            *self.named(
                record, f"required and not certified, {though}", [label for label in labels if label not in worse]
            ),
            *self.named(
                record,
                f"declared lossless and worse than noise, {though}",
                [label for label in labels if label in worse],
            ),
        ]

    def named(self, record: GridRecord, problem: str, labels: Sequence[str]) -> list[str]:
        """One problem of these candidates; none where there are none."""
        return [f"{self.shown(record)}: {problem}: {', '.join(labels)}"] if labels else []

    def live(self) -> Live:
        """How sources that serve are run in this session."""
        from pytest_redline.gate import Live
        from pytest_redline.reuse import Run

        return Live(self.options.store, self.options.device, run=Run(self.name, self.options.partial))

    def judge_from_known_outcomes(self, record: GridRecord) -> None:
        """Certify a grid of which no item ran; nothing is served for it."""
        from pytest_redline.gate import certificate_of

        try:
            grid = self.options.load(record.path)
            forget_certificate(self.options.report, grid.name)
            record.lines = {each.label: each.line for each in grid.configurations}
            record.certificate = certificate_of(grid, replace(self.live(), generate=False))
        except RedlineError as error:
            record.refusal = str(error)
            record.problems += [f"not judged: {problem}" for problem in error.problems]

    @property
    def has_news(self) -> bool:
        """Is there anything to print at the end."""
        return bool(self.problems) or any(
            record.certificate or record.refusal or record.problems or record.said for record in self.records.values()
        )

    def shown(self, record: GridRecord) -> str:
        """Path of a grid file as its test ids have it."""
        return Path(os.path.relpath(record.path, self.config.rootpath)).as_posix()


SESSION = pytest.StashKey[Session]()


def files_changed(path: Path, certificate: Certificate) -> bool:
    """Does a file that was read hold other bytes now than those that were judged."""
    read = certificate.provenance
    records = (read.grid, read.serving_file, read.prompts, *read.outcomes)
    for record in records:
        if record is None:
            continue
        try:
            content = (path.parent / record.path).read_bytes()
        except OSError:
            return True
        if hashlib.sha256(content).hexdigest() != record.sha256:
            return True
    return False


def forget_certificate(folder: Path | None, name: str | None) -> None:
    """Remove an earlier certificate and report, so that none is taken for this session's; None: there is none.

    Raises
    ------
    RedlineError
        They cannot be removed.
    """
    if folder is None or name is None:
        return
    try:
        for suffix in (".certificate.json", ".md"):
            (folder / f"{name}{suffix}").unlink(missing_ok=True)
    except OSError as error:
        raise RedlineError(f"the report cannot be written: {error}; name another --redline-report") from None
