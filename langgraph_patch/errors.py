"""The exceptions of the package.

    PatchError                  the base class: catch this one
    |-- MessagesError           a value is not a list of valid messages
    |-- OptionError             an option has an invalid value
    |-- GraphError              a graph, node name or state key cannot be patched
    |-- EvidenceError           a checkpointer failed while its records were read
    |-- ModelError              patch_model(model) lacks an attribute of a chat model
    |-- UnfinishedError         a model does not finish its messages
    |-- StreamError             the chunks of a stream contradict each other
    |-- RemovedError            a name that the package no longer has
    `-- ThreadError             a stored thread or its database cannot be read or repaired
        `-- StoreError          the database or the server itself failed

A damaged history is not an error: `validate_messages` returns its defects and
`patch_messages` repairs them. Each error message names the value, what was expected and what
to do. It never repeats a value that may hold a password.
"""

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

_INSTEAD = {
    "replace_foreign": (
        "what deepagents writes is true since deepagents 0.7, and repair_thread replaces it where "
        "a result is recorded"
    ),
}
"""Options that there were -> what there is instead."""

_MAY_BE_SECRET = re.compile(r"@|://|password\s*=", re.IGNORECASE)


def brief(error: BaseException) -> str:
    """The type and the message of an exception on one line, at most 200 characters of it."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def quoted(value: object) -> str:
    """The `repr` of a value for an error message, unless it may hold a password.

    Args:
        value: Any value, such as a wrong argument.

    Examples:
        >>> from langgraph_patch.errors import quoted
        >>> quoted("threads.db"), quoted("postgresql://bob:s3cret@db/app")
        ("'threads.db'", 'a value that is not repeated here, because it may hold a password,')
    """
    text = repr(value)
    if _MAY_BE_SECRET.search(text):
        return "a value that is not repeated here, because it may hold a password,"
    return text[:200]


class PatchError(Exception):
    """Base class of all exceptions that langgraph-patch raises on purpose."""


class MessagesError(PatchError, TypeError):
    """A value is not a list of messages, or a message has a field of a wrong type."""


class OptionError(PatchError, ValueError):
    """An option has an invalid value, or is gone."""


def refuses_gone_options(function: _F) -> _F:
    """Decorate a function that had options which are gone: an `OptionError` says what to do."""

    @wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        if gone := sorted(options.keys() & _INSTEAD.keys()):
            raise OptionError(f"The option {gone[0]} is gone: {_INSTEAD[gone[0]]}. Leave it out.")
        return function(*args, **options)

    return checked  # type: ignore[return-value]  # the same signature


class GraphError(PatchError, ValueError):
    """A graph, a node name or a state key cannot be patched."""


class EvidenceError(PatchError):
    """A checkpointer failed while it was searched for the result of a call."""


class ModelError(PatchError, AttributeError):
    """What `patch_model` returns was taken for a chat model."""


class UnfinishedError(PatchError):
    """A node calls its model again and again, and the model does not finish its messages."""


class StreamError(PatchError, ValueError):
    """The chunks of a stream contradict each other."""


class RemovedError(PatchError, ImportError):
    """A name that the package no longer has was imported; the text says what there is instead."""


class ThreadError(PatchError):
    """A stored thread, or the database that contains it, cannot be read or repaired."""


class StoreError(ThreadError):
    """The database or the server itself failed, not the reading of one thread."""
