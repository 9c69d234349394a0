"""What a session leaves behind: report files, GitHub's step summary and annotations, the tables on the terminal."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_redline.certificate import to_bytes
from pytest_redline.errors import RedlineError
from pytest_redline.paths import replace_file
from pytest_redline.report import markdown, terminal, workflow
from pytest_redline.reuse import record_statements, shared_prompts
from pytest_redline.session import GridRecord, Session, forget_certificate

if TYPE_CHECKING:
    from pytest_redline.certificate_schema import Certificate


def write(session: Session) -> None:
    """Write the report files, and append to the step summary; what goes wrong is a problem of the session."""
    done = [
        (record, record.certificate)
        for record in session.records.values()
        if record.certificate is not None and not record.changed
    ]
    done = _recorded(session, done)
    try:
        if session.options.report is not None:
            _write_reports(session, session.options.report, done)
        summary = os.environ.get("GITHUB_STEP_SUMMARY")
        if summary:
            texts = [
                markdown.refused(session.shown(record), record.refusal)
                for record in session.records.values()
                if record.refusal
            ]
            texts.append(markdown.step_summary([certificate for _, certificate in done]))
            with open(summary, "a", encoding="utf-8") as stream:
                stream.write("\n".join(text for text in texts if text))
    except (OSError, RedlineError) as error:
        session.problems.append(f"the report cannot be written: {error}")


def _recorded(session: Session, done: list[tuple[GridRecord, Certificate]]) -> list[tuple[GridRecord, Certificate]]:
    """Record what was stated; what cannot be recorded is not certified."""
    made = {each.path: certificate for each, certificate in done}
    recorded = record_statements(made, session.options.store, session.live().run)
    session.news = recorded.news
    for each, _ in done:
        each.problems += recorded.problems.get(each.path, [])
    return [(each, certificate) for each, certificate in done if each.path not in recorded.problems]


def _write_reports(session: Session, folder: Path, done: list[tuple[GridRecord, Certificate]]) -> None:
    """Write ``NAME.certificate.json`` and ``NAME.md`` of each grid; two grids of one name get neither."""
    by_name: dict[str, list[tuple[GridRecord, Certificate]]] = {}
    for record, certificate in done:
        by_name.setdefault(certificate.name.casefold(), []).append((record, certificate))  # as some file systems do
    for same in by_name.values():
        name, certificate = same[0][1].name, same[0][1]
        if len(same) > 1:
            paths = " and ".join(session.shown(record) for record, _ in same)
            session.problems.append(f"{paths} are both named {name!r}, so their reports would overwrite each other")
            for _, each in same:
                forget_certificate(folder, each.name)
            continue
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / f"{name}.certificate.json", to_bytes(certificate))
        replace_file(folder / f"{name}.md", markdown.render(certificate).encode())
        session.written.add(folder / f"{name}.certificate.json")


def summarize(session: Session, reporter: pytest.TerminalReporter) -> None:
    """Print the tables, what else keeps the gate closed, and annotations."""
    problems = [*session.problems, *(problem for record in session.records.values() for problem in record.problems)]
    shown = [(record, record.certificate) for record in session.records.values() if record.certificate is not None]
    said = [line for record in session.records.values() for line in record.said]
    if shown or problems or said:
        reporter.write_sep("=", "redline")
    for each, certificate in shown:
        for line in terminal.render(certificate, max(reporter._tw.fullwidth, 80), reporter.hasmarkup).splitlines():
            reporter.write_line(line)  # one by one: on a terminal of few letters pytest escapes line breaks too
        path = session.options.report and session.options.report / f"{certificate.name}.certificate.json"
        if path in session.written:
            reporter.write_line(f"Certificate: {os.path.relpath(path)} ({certificate.digest[:19]})")
        if each.path in session.news:
            reporter.write_line(session.news[each.path])
        if session.options.partial:
            reporter.write_line("Partial run (--redline-partial): no certificate is written")
        reporter.write_line("")
    for line in said:
        reporter.write_line(line)
    for line in shared_prompts([certificate for _, certificate in shown]):
        reporter.write_line(f"redline: {line}")
    for problem in problems:
        reporter.write_line(f"redline: {problem}", red=True)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        root = Path(os.environ.get("GITHUB_WORKSPACE") or session.config.rootpath)
        for record in session.records.values():
            path_in_repository = Path(os.path.relpath(record.path, root)).as_posix()
            lines = workflow.refused(path_in_repository, record.refusal, root) if record.refusal else []
            if record.certificate is not None:
                lines += workflow.verdicts(record.certificate, path_in_repository, record.lines)
            for line in lines:
                reporter.write_line(line)
