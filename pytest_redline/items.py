"""How a grid becomes test items, and how a verdict becomes an outcome."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_redline.errors import RedlineError
from pytest_redline.session import REPORT_KEY, SESSION, forget_certificate

if TYPE_CHECKING:
    from pytest_redline.certificate_schema import Certificate, ConfigurationResult
    from pytest_redline.grid import Configuration, Grid
    from pytest_redline.progress import Progress


class NotCertifiedError(Exception):
    """A configuration is not certified; the item that raised it says in which way."""


class WorseThanNoiseError(NotCertifiedError):
    """A configuration is declared lossless and is worse than the reference's second run, be it certified or not."""


class GridFile(pytest.File):
    """One grid file: a collector of its candidates, which obtains outcomes and certifies once per process."""

    grid: Grid
    _certificate: Certificate | None = None
    _error: RedlineError | None = None
    _sent = False
    _complained = False

    def collect(self) -> Iterable[CandidateItem]:
        """Read the file; every mistake in it is one collection error."""
        options = self.config.stash[SESSION].options
        folder = None if self.config.option.collectonly else options.report
        try:
            self.grid = options.load(self.path)
            forget_certificate(folder, self.grid.name)
        except RedlineError as error:
            with suppress(RedlineError):
                forget_certificate(folder, getattr(error, "name", None))
            raise self.CollectError(str(error)) from None
        for configuration in self.grid.candidates:
            yield CandidateItem.from_parent(self, name=configuration.label, configuration=configuration)

    def setup(self) -> None:
        """Certify the grid; if that fails, every item of it is an error."""
        failure = None
        try:
            self.certificate()
        except RedlineError as error:
            failure = str(error)
        if failure is not None:
            pytest.fail(failure, pytrace=False)

    def certificate(self) -> Certificate:
        """Certificate of the grid, computed at the first call; a failure is remembered as well."""
        from pytest_redline.gate import certificate_of

        if self._error is not None:
            raise self._error
        if self._certificate is None:
            try:
                live = replace(self.config.stash[SESSION].live(), progress=self.shown_progress)
                self._certificate = certificate_of(self.grid, live)
            except RedlineError as error:
                self._error = error
                raise
        return self._certificate

    @contextmanager
    def shown_progress(self) -> Iterator[Progress]:
        """Show what is being served, past pytest's capture; workers of pytest-xdist stay silent."""
        from rich.console import Console

        from pytest_redline.progress import Progress
        from pytest_redline.report.progress import ShownProgress

        if self.config.stash[SESSION].is_worker:
            yield Progress()
            return
        capture = self.config.pluginmanager.getplugin("capturemanager")
        uncaptured = capture.global_and_fixture_disabled() if capture else nullcontext()
        with uncaptured, ShownProgress(Console(file=sys.stderr)) as progress:
            yield progress

    def cannot_be_judged(self) -> bool:
        """Did certifying fail, and was that said before; the first call says it."""
        said, self._complained = self._complained, self._error is not None
        return said

    @property
    def refusal(self) -> str:
        """Why the grid cannot be judged; empty where it can."""
        return "" if self._error is None else str(self._error)

    def payload(self, label: str) -> dict[str, Any]:
        """What a report of one item carries; the certificate itself goes with the first one of the process."""
        from pytest_redline.certificate import to_bytes

        certificate = self.certificate()
        payload: dict[str, Any] = {
            "path": str(self.path),
            "label": label,
            "digest": certificate.digest,
            "verdict": certificate.row(label).verdict,
        }
        if label in certificate.worse_than_noise:
            payload["worse_than_noise"] = True
        if not self._sent:
            self._sent = True
            payload["certificate"] = to_bytes(certificate).decode("ascii")
            payload["lines"] = {each.label: each.line for each in self.grid.configurations}
        return payload


class CandidateItem(pytest.Item):
    """One candidate of a grid; passes when it is certified and, if declared lossless, no worse than noise."""

    parent: GridFile

    def __init__(self, *, configuration: Configuration, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.configuration = configuration

    @property
    def row(self) -> ConfigurationResult:
        """The candidate's own row of the certificate."""
        return self.parent.certificate().row(self.configuration.label)

    @property
    def worse_than_noise(self) -> bool:
        """Is it declared lossless, and worse than the reference's second run."""
        return self.configuration.label in self.parent.certificate().worse_than_noise

    def runtest(self) -> None:
        """Read the verdict.

        Raises
        ------
        WorseThanNoiseError
            The candidate is declared lossless and is not.
        NotCertifiedError
            The candidate is not certified, required or not.
        """
        row = self.row
        certificate = self.parent.certificate()
        self.user_properties = [
            *(each for each in self.user_properties if not each[0].startswith("redline.")),  # of an earlier run of it
            ("redline.verdict", row.verdict),
            ("redline.k", row.k),
            ("redline.n", row.n),
            ("redline.p", "unknown" if row.p is None else row.p),
            ("redline.bound", row.risk_upper_simultaneous),
            ("redline.gain", "unknown" if row.gain is None else row.gain),
            ("redline.required", row.required),
            ("redline.deployed", certificate.deployed),
            *self.noise_properties(certificate),
            ("redline.digest", certificate.digest),
        ]
        if self.worse_than_noise:
            raise WorseThanNoiseError
        if not row.certified:
            raise NotCertifiedError

    def noise_properties(self, certificate: Certificate) -> list[tuple[str, object]]:
        """What a report has of run-to-run noise, where the reference ran twice."""
        noise = certificate.noise_floor
        if noise is None:
            return []
        p = next(row.p for row in noise.configurations if row.label == self.configuration.label)
        return [("redline.noise_k", noise.k), ("redline.noise_p", p)]

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the numbers of a candidate that is not certified; anything else is a fault of ours, with traceback."""
        if isinstance(excinfo.value, NotCertifiedError):
            return self.shortfall()
        return super().repr_failure(excinfo, style)

    def shortfall(self) -> str:
        """Numbers of a candidate that is not certified, and what would certify it."""
        from pytest_redline.report.words import shortfall

        return "\n".join(shortfall(self.parent.certificate(), self.row))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Point at the candidate's line in the grid file."""
        return self.path, self.configuration.line - 1, f"redline: {self.name}"

    def finish_report(self, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
        """Attach the verdict to a report, and turn "not certified" of a candidate that is not required into a note."""
        if report.when == "setup" and report.failed:
            if self.parent.cannot_be_judged():
                report.longrepr = "the grid cannot be judged; see its first candidate"
            if self.parent.refusal:
                setattr(report, REPORT_KEY, {"path": str(self.path), "refusal": self.parent.refusal})
        if report.when != "call" or not self.is_verdict(call):
            return
        setattr(report, REPORT_KEY, self.parent.payload(self.configuration.label))
        report.user_properties = list(self.user_properties)
        row = self.row
        needless, faulty = row.verdict == "not needed", self.worse_than_noise
        if row.certified and not faulty:
            report.outcome, report.longrepr = "passed", None
        elif row.required or faulty:
            report.outcome = "failed"
            report.longrepr = self.shortfall()
        else:
            report.outcome, report.longrepr = "skipped", None
            report.wasxfail = row.verdict if needless else f"not certified: {row.verdict}"  # after "NOT REQUIRED"
        if row.certified or row.required or faulty:
            report.__dict__.pop("wasxfail", None)

    @staticmethod
    def is_verdict(call: pytest.CallInfo[None]) -> bool:
        """Did the item reach its verdict, rather than crash or be skipped."""
        return call.excinfo is None or isinstance(call.excinfo.value, NotCertifiedError)
