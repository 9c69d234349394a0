"""pytest hooks, and nothing else: every hook delegates in a line or two.

pytest loads this module in every session, so nothing here or in what it imports needs numpy, pydantic, yaml or rich;
those are imported where a grid is really there.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pytest_redline.options import add_options
from pytest_redline.session import SESSION, Session


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and ini keys."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Open the session's book, which notes the verdicts; refuses ini keys that cannot be read."""
    config.stash[SESSION] = session = Session(config)
    config.pluginmanager.register(session, "redline_session")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect ``redline.yaml`` and ``*.redline.yaml``."""
    return parent.config.stash[SESSION].collect(file_path, parent)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give a candidate the last word on its own report."""
    report = yield
    item.config.stash[SESSION].finish_report(item, report, call)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Name the outcomes of candidates."""
    return Session.status(report)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note which candidates are to run."""
    session.config.stash[SESSION].collected(session)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Prepare a worker of pytest-xdist."""
    node.config.stash[SESSION].start_worker(node)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, object, object]:
    """Judge what no item judged and write certificates before anything else ends; keep the exit status after it."""
    book = session.config.stash[SESSION]
    book.finish(session)
    try:
        return (yield)
    except pytest.exit.Exception as stop:
        if stop.returncode is not None:
            stop.returncode = book.at_least(stop.returncode)
        raise
    finally:
        session.exitstatus = book.at_least(session.exitstatus)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the tables; nothing where there is no grid."""
    session = config.stash[SESSION]
    if session.has_news:
        from pytest_redline.publish import summarize

        summarize(session, terminalreporter)
