"""The exceptions of the package, and its logger for what is no error.

    PatchError                  the base class: catch this one
    |-- MessagesError           a value is not a list, or a stream, of valid messages
    |-- OptionError             an option has an invalid value
    |-- GraphError              a graph, node name or state key cannot be patched
    |-- EvidenceError           a checkpointer failed while its records were read
    |-- UnfinishedError         a model does not finish its messages
    |-- StartedError            a call that runs once was started before
    `-- ThreadError             a stored thread or its database cannot be read or repaired

A damaged history is not an error: `validate_messages` returns its defects and
`patch_messages` repairs them. Each error message names the value, what was expected and what
to do. It never repeats a value that may hold a password.
"""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from langgraph_patch._text import quoted

__all__ = [
    "EvidenceError", "GraphError", "MessagesError", "OptionError", "PatchError", "StartedError",
    "ThreadError", "UnfinishedError",
]  # fmt: skip

logger: logging.Logger = logging.getLogger("langgraph_patch")
"""Tells what was repaired, and warns of what is not done. An application sets its level."""


class PatchError(Exception):
    """Base class of all exceptions that langgraph-patch raises on purpose."""


class MessagesError(PatchError, TypeError):
    """A value is not a list or a stream of messages, or a message has a field of a wrong type."""


class OptionError(PatchError, ValueError):
    """An option has an invalid value."""


class GraphError(PatchError, ValueError):
    """A graph, a node name or a state key cannot be patched."""


class EvidenceError(PatchError):
    """A checkpointer failed while it was searched for the result of a call."""


class UnfinishedError(PatchError):
    """A node calls its model again and again, and the model does not finish its messages."""


class StartedError(PatchError):
    """A call of a tool in `once` was started before, and is not run again.

    Attributes:
        tool_name: The name of the tool.
        tool_call_id: The id of the call.
        thread_id: The thread.
    """

    def __init__(
        self, message: str, tool_name: str = "", tool_call_id: str = "", thread_id: str = ""
    ) -> None:
        super().__init__(message)
        self.tool_name = tool_name
        self.tool_call_id = tool_call_id
        self.thread_id = thread_id


class ThreadError(PatchError):
    """A stored thread, or the database that contains it, cannot be read or repaired."""


def check_flags(**flags: object) -> None:
    """Check options that are on or off, by name: a text such as "no" is true.

    Raises:
        OptionError: If one is neither True nor False.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise OptionError(f"{name}={quoted(value)}: expected True or False.")


_NOTE = "langgraph-patch: "


def note(error: BaseException, text: str) -> None:
    """Add a note of this package to an error, if it takes one."""
    with contextlib.suppress(Exception):  # a class may forbid attributes
        error.add_note(_NOTE + text)


def without_notes(error: BaseException) -> None:
    """Remove the notes of this package: they speak of the run in which the object was raised."""
    with contextlib.suppress(Exception):  # as above; `__notes__` may be anything
        notes: list[Any] = error.__notes__
        notes[:] = [each for each in notes if not (type(each) is str and each.startswith(_NOTE))]


def is_interrupt(error: BaseException) -> bool:
    """Whether it is Ctrl-C, or has it among its causes: what ends a query may raise, too."""
    return any(isinstance(each, KeyboardInterrupt) for each in chain_of(error))


def chain_of(error: BaseException | None, seen: set[int] | None = None) -> Iterator[BaseException]:
    """An error, its cause, the cause of that, and so on.

    Args:
        error: The error.
        seen: The ids of errors that are left out; those of the chain are added. Default: none.
    """
    each: Any = error
    seen = set() if seen is None else seen
    while isinstance(each, BaseException) and id(each) not in seen:
        seen.add(id(each))
        yield each
        context = None if attribute_of(each, "__suppress_context__") else "__context__"
        each = attribute_of(each, "__cause__") or (context and attribute_of(each, context))


def attribute_of(value: object, name: str) -> Any:
    """An attribute; None if there is none, or if it raises."""
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001 - a property of the application may raise anything
        return None
