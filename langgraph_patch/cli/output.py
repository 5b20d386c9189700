"""Write data to standard output and everything else to standard error; read standard input."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from langgraph_patch.render.columns import Line, plain
from langgraph_patch.render.text import one_line

_WIDTH = 120  # of output that no terminal shows

# --- the streams -------------------------------------------------------------------------


def prepare_streams() -> None:
    """Let no output fail: what cannot be encoded is escaped, and a closed stream keeps nothing."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - until the process ends
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def standard_input() -> Iterable[str]:
    """The lines of standard input: none if it is closed, and bytes that are no text are escaped."""
    stream: Any = sys.stdin
    if stream is None:
        return []
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="surrogateescape")
    return cast("Iterable[str]", stream)


def discard_output(stream: Any) -> None:
    """Discard what is still written to a stream that nobody reads any more."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, stream.fileno())
    os.close(devnull)


def terminal_width() -> int | None:
    """How many columns the terminal of standard output has; None if it is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def page_width() -> int:
    """How many columns a text has that is laid out in any case; COLUMNS decides for a pipe."""
    return shutil.get_terminal_size((_WIDTH, 24)).columns


# --- messages ----------------------------------------------------------------------------


def cleaned(text: str) -> str:
    """A text on one line, without passwords."""
    # It belongs to the stores, which take a second to import: the parser must not wait for it.
    from langgraph_patch.cli.masking import masked  # noqa: PLC0415

    return one_line(masked(text))


def print_message(text: str) -> None:
    """Print one line to standard error, without passwords."""
    _print_error(cleaned(text))


def print_next(command: str) -> None:
    """Print the next command to type, which names no password: it must stay as it is."""
    _print_error(f"next: {one_line(command)} (a dry run)")


def _print_error(line: str) -> None:
    try:
        sys.stderr.write(f"langgraph-patch: {line}\n")
        sys.stderr.flush()
    except BrokenPipeError:
        discard_output(sys.stderr)


# --- data --------------------------------------------------------------------------------


def print_lines(lines: Iterable[Line], *, end: str = "\n") -> None:
    """Print lines to standard output, coloured if it is a terminal, and flush them.

    Args:
        lines: The lines.
        end: What follows the last line. Default: a line break.

    Raises:
        BrokenPipeError: If nobody reads the output.
    """
    write = painted if sys.stdout.isatty() else plain
    texts = [write(line) for line in lines]
    if texts:
        sys.stdout.write("\n".join(texts) + end)
        sys.stdout.flush()


def painted(line: Line) -> str:
    """A line with the colours of the terminal; without rich, without colours."""
    render = _renderer()
    return plain(line) if render is None else render(line)


_renderers: list[Callable[[Line], str] | None] = []


def _renderer() -> Callable[[Line], str] | None:
    """What makes colours, if rich is installed; it is made once."""
    if not _renderers:
        try:
            _renderers.append(_rich_renderer())
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "rich":
                raise
            _renderers.append(None)
    return _renderers[0]


def _rich_renderer() -> Callable[[Line], str]:
    from rich.console import Console  # noqa: PLC0415 - may not be installed
    from rich.text import Text  # noqa: PLC0415 - may not be installed

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)

    def render(line: Line) -> str:
        with console.capture() as captured:
            console.print(Text.assemble(*((text, style) for text, style in line)), end="")
        return captured.get().rstrip(" ")

    return render


def print_json(values: Mapping[str, Any]) -> None:
    """Print values as JSON on one line of standard output, and flush it.

    Raises:
        BrokenPipeError: If nobody reads the output.
    """
    # Parsed again: Python writes NaN and Infinity, which are not JSON, so they become strings.
    text = json.dumps(json.loads(json.dumps(values, default=repr), parse_constant=str))
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def without_messages(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a report or a repair with the changes in the place of the whole patch."""
    changes = (values.get("patch") or {}).get("changes", [])
    return {key: value for key, value in values.items() if key != "patch"} | {"changes": changes}
