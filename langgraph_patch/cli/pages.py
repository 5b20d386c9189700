"""Write HTML pages: of one conversation, or of a whole scan with a page for each thread."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import IO, Any, Self

from langchain_core.messages import BaseMessage

from langgraph_patch import __version__
from langgraph_patch.cli.output import print_message
from langgraph_patch.errors import OptionError
from langgraph_patch.render.html import index_body, index_row, page, report_body
from langgraph_patch.render.json_values import json_value
from langgraph_patch.render.text import html_text
from langgraph_patch.threads.reports import ThreadReport

_MADE = "%Y-%m-%d %H:%M UTC"


def values_of(history: Iterable[BaseMessage]) -> list[Any]:
    """Messages as JSON values."""
    return [json_value(message) for message in history]


def footer_of(database: str) -> str:
    """Where a page comes from: the database, the date and the version."""
    return (
        f"Database {database}, read on {datetime.now(UTC).strftime(_MADE)} by "
        f"langgraph-patch {__version__}"
    )


@contextmanager
def _file_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise OptionError(f"--html {path!r} cannot be written: {error}.") from error


def write_page(path: str, report: ThreadReport, history: Sequence[Any], database: str) -> None:
    """Write a report and its history to a file as an HTML page.

    Args:
        path: The file.
        report: The report.
        history: The messages as JSON values.
        database: What to call the database.

    Raises:
        OptionError: If the file cannot be written.
    """
    body = report_body(report.to_dict(), history)
    with _file_errors(path), Path(path).open("w", encoding="utf-8") as file:
        file.writelines(page(f"Thread {report.thread_id}", [body], footer_of(database)))
    print_message(f"wrote {path!r}.")


class ScanPages:
    """The pages of a scan, written while it runs: one file, or a folder with a file a thread.

    Args:
        path: A file if it ends with `.html` or `.htm`, otherwise a folder, which is made.
        database: What to call the database.
        counts: The number of histories of each status, as far as the scan is.

    Raises:
        OptionError: If nothing can be written there.
    """

    def __init__(self, path: str, database: str, counts: Mapping[str, int]) -> None:
        self._name = path
        self._database = database
        self._counts = counts
        self._is_file = path.lower().endswith((".html", ".htm"))
        self._count = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with _file_errors(self._name):
            target = Path(self._name)
            if not self._is_file:
                (target / "threads").mkdir(parents=True, exist_ok=True)
            index = target if self._is_file else target / "index.html"
            self._index = self._stack.enter_context(index.open("w", encoding="utf-8"))
        # The index comes first, and its numbers are known last.
        self._rows = self._spool()
        self._threads = self._spool()
        return self

    def _spool(self) -> IO[str]:
        return self._stack.enter_context(
            tempfile.SpooledTemporaryFile(2**20, "w+", encoding="utf-8")
        )

    def add(self, report: ThreadReport, history: Sequence[Any]) -> None:
        """Add a thread.

        Args:
            report: Its report.
            history: Its messages as JSON values, shown if the report has no patch.

        Raises:
            OptionError: If its page cannot be written.
        """
        self._count += 1
        values = report.to_dict()
        body = report_body(values, history)
        title = f"Thread {report.thread_id}"
        if self._is_file:
            link = f"#thread-{self._count}"
            self._threads.write(f"<h2 id=thread-{self._count}>{html_text(title)}</h2>{body}")
            self._threads.write("<p><a href='#'>All threads</a></p>")
        else:
            link = f"threads/{self._count:06}.html"
            back = "<p><a href='../index.html'>All threads</a></p>"
            with _file_errors(link), (Path(self._name) / link).open("w", encoding="utf-8") as file:
                file.writelines(page(title, [back, body], footer_of(self._database)))
        self._rows.write(index_row(values, link) + "\n")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write the index, also if the scan was stopped or the database failed."""
        with self._stack:
            if kind is None or not issubclass(kind, OptionError):  # a page could not be written
                self._write_index()

    def _write_index(self) -> None:
        self._rows.seek(0)
        self._threads.seek(0)
        rows = index_body(dict(self._counts), self._rows)
        body = chain(rows if self._count else ["<p>No thread is listed.</p>"], self._threads)
        title = "Threads with a broken tool-call history"
        with _file_errors(self._name):
            self._index.writelines(page(title, body, footer_of(self._database)))
        threads = "1 thread" if self._count == 1 else f"{self._count} threads"
        print_message(f"wrote {threads} to {self._name!r}.")
