"""`pytest --processes=3`: what is collected once is run by several processes, each forked from the one that did.

Torch is imported, and all tests are collected, once and not once for each. A file's tests go to one process, as they
share what they train.
"""

import multiprocessing.connection
import os
import signal
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import groupby, pairwise
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import coverage
import pytest

from helpers.prepared import leave


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=0, help="run the tests in so many processes, file by file")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("processes"):
        config.pluginmanager.register(SideBySide(config))


class SideBySide:
    """The process that hands out files and hears how their tests end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.processes: dict[Connection, int] = {}
        self.left: dict[Connection, list[pytest.Item]] = {}  # what each has been given and has not run

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly:
            return None  # as it is without processes
        vars(self.config)["_tmp_path_factory"].getbasetemp()  # one for all
        if terminal := self.config.pluginmanager.getplugin("terminalreporter"):
            terminal.showfspath = False  # dots alone, as every next one may be of another file
        files = deque(files_of(session.items))
        try:
            for _ in range(min(len(files), self.config.getoption("processes"))):
                self.fork(session)
            while self.processes:
                for connection in multiprocessing.connection.wait(list(self.processes)):
                    assert isinstance(connection, Connection)
                    self.listen(connection, session, files)
        finally:
            for connection, process in self.processes.items():
                connection.close()
                os.kill(process, signal.SIGINT)  # when the tests are stopped; it has not ended, so that it is still it
                os.waitpid(process, 0)
        return True

    def fork(self, session: pytest.Session) -> None:
        here, there = multiprocessing.Pipe()
        process = os.fork()
        if process == 0:
            for connection in (here, *self.processes):
                connection.close()
            work(session, there)
        there.close()
        self.processes[here], self.left[here] = process, []

    def listen(self, connection: Connection, session: pytest.Session, files: "deque[list[int]]") -> None:
        """A file is asked for, or a test has ended, or the process has."""
        try:
            told = connection.recv()
        except (EOFError, ConnectionError):
            self.ended(connection, session)
            return
        if told is None:
            given = files.popleft() if files else []
            connection.send(given)
            self.left[connection] += [session.items[number] for number in given]
        else:
            self.finished(self.left[connection].pop(0), told)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)

    def finished(self, item: pytest.Item, told: Sequence[dict[str, Any]]) -> None:
        """Report it as if it had run here."""
        hook = self.config.hook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for data in told:
            report = hook.pytest_report_from_serializable(config=self.config, data=data)
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def ended(self, connection: Connection, session: pytest.Session) -> None:
        """No test may be missing unnoticed because its process broke down."""
        _, status = os.waitpid(self.processes.pop(connection), 0)
        if left := self.left.pop(connection):
            item, code = left[0], os.waitstatus_to_exitcode(status)
            said = f"the process that ran this test ended with {code}, and {len(left) - 1} more were not run"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
            self.config.hook.pytest_runtest_logreport(report=report)
            session.shouldfail = said
            raise session.Failed(said)


def files_of(items: Sequence[pytest.Item]) -> Iterator[list[int]]:
    """The numbers of the tests of each file, in the order of the files."""
    for _, numbered in groupby(enumerate(items), lambda numbered: numbered[1].path):
        yield [number for number, _ in numbered]


def work(session: pytest.Session, connection: Connection) -> NoReturn:
    """Be one of the processes: run file after file, and tell how each test ended."""
    plugins = session.config.pluginmanager
    capturing = plugins.getplugin("capturemanager")
    capturing.stop_global_capturing()  # into files that this process shares with all others
    capturing.start_global_capturing()
    plugins.unregister(name="terminalreporter")
    plugins.register(Teller(session.config, connection))
    code = 1
    try:
        with suppress(EOFError, ConnectionError):  # nobody listens any more
            run_files(session, connection)
        if (measured := coverage.Coverage.current()) is not None:
            measured.save()
        code = 0
    except Exception:
        capturing.stop_global_capturing()
        traceback.print_exc()
    finally:
        leave(code)


def run_files(session: pytest.Session, connection: Connection) -> None:
    """The next file is asked for before the last test of one, so that what both share is kept."""
    numbers = ask(connection)
    while numbers:
        items = [session.items[number] for number in numbers]
        for item, following in pairwise(items):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        numbers = ask(connection)
        after = session.items[numbers[0]] if numbers else None
        items[-1].config.hook.pytest_runtest_protocol(item=items[-1], nextitem=after)


def ask(connection: Connection) -> Sequence[int]:
    connection.send(None)
    numbers: Sequence[int] = connection.recv()
    return numbers


class Teller:
    """Passes on what a terminal would be told, test by test."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self.config, self.connection = config, connection
        self.told: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.told.append(self.config.hook.pytest_report_to_serializable(config=self.config, report=report))

    def pytest_runtest_logfinish(self) -> None:
        self.connection.send(self.told)
        self.told = []
