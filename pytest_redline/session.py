"""What one pytest session makes of all its grids together; the exit status is decided here.

Items are judged where they run, which may be workers of pytest-xdist. Their reports bring the certificates to the
controller, and only the controller judges what no item judged, writes files and prints.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_redline.errors import RedlineError
from pytest_redline.options import Options

if TYPE_CHECKING:
    from pytest_redline.certificate_schema import Certificate

REPORT_KEY = "redline"  # attribute of a TestReport that holds what the controller needs, in JSON types
WORKER_KEY = "redline_grids"  # of a worker's output: the grid files that it met


@dataclass
class GridRecord:
    """What is known of one grid file."""

    path: Path
    certificate: Certificate | None = None
    lines: Mapping[str, int] = field(default_factory=dict)  # label -> line of the grid file
    failed: dict[str, bool] = field(default_factory=dict)  # label -> did the report of its verdict fail
    changed: bool = False  # did processes of one session see different outcomes
    problems: list[str] = field(default_factory=list)  # why the gate is not passed, beyond what items report


class Session:
    """The session's book of grids and verdicts."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.options = Options.of(config)
        self.records: dict[str, GridRecord] = {}
        self.problems: list[str] = []
        self.written: set[Path] = set()  # certificates

    @property
    def is_worker(self) -> bool:
        """Does a controller of pytest-xdist decide instead."""
        return hasattr(self.config, "workerinput")

    # -- while tests run ----------------------------------------------------------------------------------------

    def collect(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Make a collector of a grid file, and remember it even if all its items are deselected."""
        if file_path.name not in ("redline.yaml", "redline.yml") and not file_path.name.endswith(
            (".redline.yaml", ".redline.yml")
        ):
            return None
        from pytest_redline.items import GridFile

        self.record(str(file_path))
        return GridFile.from_parent(parent, path=file_path)

    def record(self, path: str) -> GridRecord:
        """Record of a grid file, made on first use."""
        return self.records.setdefault(path, GridRecord(Path(path)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the verdict that a report brings."""
        payload = getattr(report, REPORT_KEY, None)
        if payload is None or self.is_worker:
            return
        from pytest_redline.certificate_schema import Certificate

        record = self.record(payload["path"])
        if "certificate" in payload:
            record.lines = payload["lines"]
            if record.certificate is None:
                record.certificate = Certificate.model_validate_json(payload["certificate"])
        record.failed[payload["label"]] = report.failed
        if record.certificate is not None and payload["digest"] != record.certificate.digest:
            record.changed = True

    def finish_report(self, item: pytest.Item, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
        """Let a candidate decide its own report."""
        if self.records:
            from pytest_redline.items import CandidateItem

            if isinstance(item, CandidateItem):
                item.finish_report(report, call)

    @staticmethod
    def status(report: pytest.TestReport) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
        """Category, letter and word of a candidate's outcome; None leaves it to pytest."""
        if not hasattr(report, REPORT_KEY):
            return None
        if report.passed:
            return "passed", ".", ("CERTIFIED", {"green": True})
        if report.failed:
            return "failed", "F", ("NOT CERTIFIED", {"red": True})
        if report.skipped:
            return "not required", "n", ("NOT REQUIRED", {"yellow": True})
        return None

    def receive_worker(self, output: Mapping[str, Any]) -> None:
        """Note the grid files that a worker met."""
        for path in output.get(WORKER_KEY, ()):
            self.record(path)

    # -- at the end ---------------------------------------------------------------------------------------------

    def finish(self, session: pytest.Session) -> None:
        """Judge what no item judged, write files, and set the exit status. Nothing unjudged may end green."""
        if self.is_worker:
            self.config.workeroutput[WORKER_KEY] = list(self.records)  # type: ignore[attr-defined]
            return
        if self.options.given and not self.records:
            self.problems.append(
                f"{', '.join(self.options.given)} given, but no grid was collected; a grid is a file named "
                "redline.yaml or *.redline.yaml under the paths that pytest was given"
            )
            if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
                session.exitstatus = pytest.ExitCode.USAGE_ERROR
            return
        if self.config.option.collectonly:
            return
        undecided = session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        for record in self.records.values():
            self.judge(record, complete=undecided)
        if not self.options.partial:
            self.write()
        if undecided and (
            self.problems or any(record.problems or any(record.failed.values()) for record in self.records.values())
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def judge(self, record: GridRecord, complete: bool) -> None:
        """Find required candidates that are not certified and whose item did not run, or was made to pass.

        Where no item of the grid ran, its verdicts come from the known outcomes, if the session is ``complete``: one
        that already failed or was interrupted needs no further reason. A partial run judges the items that ran only.
        """
        if record.certificate is None and complete and not self.options.partial:
            from pytest_redline.gate import Live, certificate_of

            try:
                grid = self.options.load(record.path)
                forget_certificate(self.options.report, grid.name)
                record.lines = {each.label: each.line for each in grid.configurations}
                known = Live(self.options.store, self.options.device, generate=False)
                record.certificate = certificate_of(grid, known)
            except RedlineError as error:
                record.problems += [f"not judged: {problem}" for problem in error.problems]
        if record.changed:
            record.problems.append(
                f"{self.shown(record)}: its outcomes changed while the session ran, so no certificate is written"
            )
        if record.certificate is not None:
            failing = record.certificate.failing
            unseen = [] if self.options.partial else [label for label in failing if label not in record.failed]
            passed = [label for label in failing if record.failed.get(label) is False]
            for labels, how in ((unseen, "not among the tests that ran"), (passed, "its test did not fail")):
                if labels:
                    record.problems.append(
                        f"{self.shown(record)}: required and not certified, though {how}: {', '.join(labels)}"
                    )

    def write(self) -> None:
        """Write the report files and the step summary of GitHub Actions."""
        done = [
            (record, record.certificate)
            for record in self.records.values()
            if record.certificate is not None and not record.changed
        ]
        try:
            if self.options.report is not None:
                self.write_reports(self.options.report, done)
            summary = os.environ.get("GITHUB_STEP_SUMMARY")
            if summary and done:
                from pytest_redline.report.markdown import step_summary

                with open(summary, "a", encoding="utf-8") as stream:
                    stream.write(step_summary([certificate for _, certificate in done]))
        except (OSError, RedlineError) as error:
            self.problems.append(f"the report cannot be written: {error}")

    def write_reports(self, folder: Path, done: list[tuple[GridRecord, Certificate]]) -> None:
        """Write ``NAME.certificate.json`` and ``NAME.md`` of each grid; two grids of one name get neither."""
        from pytest_redline.certificate import to_bytes
        from pytest_redline.report.markdown import render

        by_name: dict[str, list[tuple[GridRecord, Certificate]]] = {}
        for record, certificate in done:
            by_name.setdefault(certificate.name, []).append((record, certificate))
        for name, same in by_name.items():
            if len(same) > 1:
                paths = " and ".join(self.shown(record) for record, _ in same)
                self.problems.append(f"{paths} are both named {name!r}, so their reports would overwrite each other")
                forget_certificate(folder, name)
                continue
            certificate = same[0][1]
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / f"{name}.md", render(certificate).encode())
            replace_file(folder / f"{name}.certificate.json", to_bytes(certificate))
            self.written.add(folder / f"{name}.certificate.json")

    def summarize(self, reporter: pytest.TerminalReporter) -> None:
        """Print the tables, what else keeps the gate closed, and annotations; nothing where there is no grid."""
        problems = [*self.problems, *(problem for record in self.records.values() for problem in record.problems)]
        shown = [(record, record.certificate) for record in self.records.values() if record.certificate is not None]
        if not (problems or shown):
            return
        from pytest_redline.report.annotations import workflow_commands
        from pytest_redline.report.terminal import render

        reporter.write_sep("=", "redline")
        for _, certificate in shown:
            for line in render(certificate, max(reporter._tw.fullwidth, 80), reporter.hasmarkup).splitlines():
                reporter.write_line(line)  # one by one: on a terminal of few letters pytest escapes line breaks too
            path = self.options.report and self.options.report / f"{certificate.name}.certificate.json"
            if path in self.written:
                reporter.write_line(f"Certificate: {os.path.relpath(path)} ({certificate.digest[:19]})")
            if self.options.partial:
                reporter.write_line("Partial run (--redline-partial): no certificate is written")
            reporter.write_line("")
        for problem in problems:
            reporter.write_line(f"redline: {problem}", red=True)
        if os.environ.get("GITHUB_ACTIONS") == "true":
            root = os.environ.get("GITHUB_WORKSPACE") or self.config.rootpath
            for record, certificate in shown:
                shown_path = Path(os.path.relpath(record.path, root)).as_posix()
                for line in workflow_commands(certificate, shown_path, record.lines):
                    reporter.write_line(line)

    def shown(self, record: GridRecord) -> str:
        """Path of a grid file as its test ids have it."""
        return Path(os.path.relpath(record.path, self.config.rootpath)).as_posix()


SESSION = pytest.StashKey[Session]()


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


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
