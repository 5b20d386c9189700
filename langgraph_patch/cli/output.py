"""How the command line writes: data on the standard output, all else on the standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage

from langgraph_patch.errors import OptionError
from langgraph_patch.history.patch import Patch
from langgraph_patch.render.html import page, report_html
from langgraph_patch.render.text import one_line
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport
from langgraph_patch.threads.stores.postgres import masked


def open_streams() -> None:
    """Let what cannot be encoded be written escaped, and what was closed take all and keep none."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - as long as we run
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def silence(stream: Any) -> None:
    """Whoever read a stream has gone: what is still written to it goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def tell(text: str) -> None:
    """Say something beside the data."""
    try:
        sys.stderr.write(f"langgraph-patch: {one_line(masked(text))}\n")
    except BrokenPipeError:
        silence(sys.stderr)


def print_value(
    value: ThreadReport | ThreadRepair, *, as_json: bool, is_whole: bool = False
) -> None:
    """Print a report or a repair on one line, at once.

    Raises:
        BrokenPipeError: If nobody reads it.
    """
    sys.stdout.write((_json(value, is_whole=is_whole) if as_json else one_line(str(value))) + "\n")
    sys.stdout.flush()


def _json(value: ThreadReport | ThreadRepair, *, is_whole: bool) -> str:
    line = value.to_dict()
    if not is_whole:
        line["changes"] = (line.pop("patch") or {}).get("changes", [])
    # Twice: Python's NaN and Infinity are no JSON, and a state may hold them.
    return json.dumps(json.loads(json.dumps(line, default=repr), parse_constant=str))


def write_page(file: str, report: ThreadReport, history: list[BaseMessage]) -> None:
    """Write a report and its history as a page.

    Raises:
        OptionError: If the file cannot be written.
    """
    shown = report_html(report.to_dict(), Patch([], (), history).to_dict()["before"])
    try:
        Path(file).write_text(page(f"Thread {report.thread_id}", [shown]), encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise OptionError(f"--html {file!r} cannot be written: {error}.") from error
    tell(f"wrote {file!r}.")


# --- what needs rich ---------------------------------------------------------------------


@contextmanager
def rich_needed() -> Iterator[None]:
    """Say how to get rich, if what is imported here is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        raise OptionError("this needs rich: pip install 'langgraph-patch[cli]'") from error


def progress() -> AbstractContextManager[Callable[[str], None]]:
    """A bar, if somebody watches and rich is there."""
    if not sys.stderr.isatty():
        return nullcontext(lambda _: None)
    try:
        return _bar()
    except ModuleNotFoundError:
        return nullcontext(lambda _: None)


def _bar() -> AbstractContextManager[Callable[[str], None]]:
    from rich.console import Console  # noqa: PLC0415 - may not be installed
    from rich.progress import Progress  # noqa: PLC0415 - may not be installed

    @contextmanager
    def shown() -> Iterator[Callable[[str], None]]:
        with Progress(
            console=Console(stderr=True, markup=False),
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # else rich would send the data to the terminal
        ) as bar:
            task = bar.add_task("threads", total=None)
            yield lambda _: bar.advance(task)

    return shown()
