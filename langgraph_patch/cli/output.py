"""Write data to standard output and everything else to standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage

from langgraph_patch.errors import OptionError
from langgraph_patch.history.patch import Patch
from langgraph_patch.render.html import page, report_html
from langgraph_patch.render.text import one_line
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport
from langgraph_patch.threads.stores.masking import masked

# --- the streams -------------------------------------------------------------------------


def prepare_streams() -> None:
    """Escape what a stream cannot encode, and replace a closed stream by one that keeps nothing."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - until the process ends
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def discard_output(stream: Any) -> None:
    """Discard what is still written to a stream that nobody reads any more."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream.fileno())
    os.close(devnull)


def print_message(text: str) -> None:
    """Print one line to standard error, without passwords."""
    try:
        sys.stderr.write(f"langgraph-patch: {one_line(masked(text))}\n")
    except BrokenPipeError:
        discard_output(sys.stderr)


def print_result(
    result: ThreadReport | ThreadRepair, *, as_json: bool, with_patch: bool = False
) -> None:
    """Print a report or a repair on one line of standard output, and flush it.

    Args:
        result: What to print.
        as_json: Whether to print JSON.
        with_patch: Whether the JSON has the whole patch and not only its changes. Default: False.

    Raises:
        BrokenPipeError: If nobody reads the output.
    """
    line = _json_line(result, with_patch=with_patch) if as_json else one_line(str(result))
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _json_line(result: ThreadReport | ThreadRepair, *, with_patch: bool) -> str:
    values = result.to_dict()
    if not with_patch:
        values["changes"] = (values.pop("patch") or {}).get("changes", [])
    # Parsed again: Python writes NaN and Infinity, which are not JSON, so they become strings.
    return json.dumps(json.loads(json.dumps(values, default=repr), parse_constant=str))


# --- one conversation --------------------------------------------------------------------


def write_page(file: str, report: ThreadReport, history: list[BaseMessage]) -> None:
    """Write a report and its history to a file as an HTML page.

    Raises:
        OptionError: If the file cannot be written.
    """
    fragment = report_html(report.to_dict(), _values_of(history))
    try:
        Path(file).write_text(page(f"Thread {report.thread_id}", [fragment]), encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise OptionError(f"--html {file!r} cannot be written: {error}.") from error
    print_message(f"wrote {file!r}.")


def print_table(report: ThreadReport, history: list[BaseMessage]) -> None:
    """Print a report and its history as a table.

    Raises:
        OptionError: If rich is not installed.
    """
    with rich_required():
        from rich.console import Console  # noqa: PLC0415 - may not be installed

        from langgraph_patch.render.terminal import show_report  # noqa: PLC0415 - needs rich
    console = Console(highlight=False, markup=False, emoji=False)
    with console.capture() as captured:  # rich itself would exit if nobody reads the output
        show_report(str(report), report.to_dict(), _values_of(history), console)
    sys.stdout.write(captured.get())


def _values_of(history: list[BaseMessage]) -> Sequence[Any]:
    values: Sequence[Any] = Patch(history, (), history).to_dict()["messages"]
    return values


# --- what needs rich ---------------------------------------------------------------------


@contextmanager
def rich_required() -> Iterator[None]:
    """Explain how to install rich if an import in this context does not find it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        raise OptionError("this needs rich: pip install 'langgraph-patch[cli]'") from error


def progress_bar() -> AbstractContextManager[Callable[[], None]]:
    """A function that advances a bar. There is no bar without a terminal or without rich."""
    if not sys.stderr.isatty():
        return nullcontext(lambda: None)
    try:
        return _rich_bar()
    except ModuleNotFoundError:
        return nullcontext(lambda: None)


def _rich_bar() -> AbstractContextManager[Callable[[], None]]:
    from rich.console import Console  # noqa: PLC0415 - may not be installed
    from rich.progress import Progress  # noqa: PLC0415 - may not be installed

    @contextmanager
    def running() -> Iterator[Callable[[], None]]:
        with Progress(
            console=Console(stderr=True, markup=False),
            transient=True,
            redirect_stdout=sys.stdout.isatty(),  # else rich would send the data to the terminal
        ) as bar:
            task = bar.add_task("threads", total=None)
            yield lambda: bar.advance(task)

    return running()
