"""The exceptions of the package.

    PatchError                  the base class: catch this one
    |-- MessagesError           a value is not a list of valid messages
    |-- OptionError             an option has an invalid value
    |-- GraphError              a graph, node name or state key cannot be patched
    |-- EvidenceError           a checkpointer failed while its records were read
    |-- ModelError              patch_model(model) lacks an attribute of a chat model
    |-- UnfinishedError         a model does not finish its messages
    |-- StreamError             the chunks of a stream contradict each other
    `-- ThreadError             a stored thread or its database cannot be read or repaired
        `-- StoreError          the database or the server itself failed

A damaged history is not an error: `validate_messages` returns its defects and
`patch_messages` repairs them. Each error message names the value, what was expected and what
to do. It never repeats a value that may hold a password.
"""

from collections.abc import Iterator

from langgraph_patch._text import quoted


class PatchError(Exception):
    """Base class of all exceptions that langgraph-patch raises on purpose."""


class MessagesError(PatchError, TypeError):
    """A value is not a list of messages, or a message has a field of a wrong type."""


class OptionError(PatchError, ValueError):
    """An option has an invalid value."""


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


class ThreadError(PatchError):
    """A stored thread, or the database that contains it, cannot be read or repaired."""


class StoreError(ThreadError):
    """The database or the server itself failed, not the reading of one thread."""


def check_flags(**flags: object) -> None:
    """Check options that are on or off, by name: a text such as "no" is true.

    Raises:
        OptionError: If one is neither True nor False.
    """
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise OptionError(f"{name}={quoted(value)}: expected True or False.")


# --- whose failure an error is --------------------------------------------------------------


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """An error, its cause, the cause of that, and so on."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def is_store_failure(error: BaseException) -> bool:
    """Whether the database or the server failed (locked, lost, full), and not one thread of it.

    The cause of an error counts, such as that of an `EvidenceError`.
    """
    return any(map(_is_of_store, chain_of(error)))


def _is_of_store(error: BaseException) -> bool:
    if isinstance(error, StoreError | ConnectionError):
        return True
    if class_names(error, "sqlite3"):
        # Without a code it is an error of Python, for text that is not UTF-8 in one row.
        code = getattr(error, "sqlite_errorcode", None)
        return code == _NOT_A_DATABASE or (
            code is not None and "OperationalError" in class_names(error, "sqlite3")
        )
    names = class_names(error, "psycopg")
    return bool(names & _FAILURES) and not names & _OF_ONE_THREAD


_NOT_A_DATABASE = 26

_FAILURES = {
    *("OperationalError", "InterfaceError", "ProgrammingError"),
    *("ReadOnlySqlTransaction", "InFailedSqlTransaction", "IdleInTransactionSessionTimeout"),
}
_OF_ONE_THREAD = {"QueryCanceled", "ProgramLimitExceeded"}
"""It took too long, or is too large: the next thread may be smaller."""


def class_names(value: object, package: str) -> set[str]:
    """The names of the classes of `value` that `package` defines.

    It replaces `isinstance` where the package is optional or slow to import: whoever made the
    value has imported it.

    Args:
        value: Any object.
        package: How the names of the modules begin.

    Examples:
        >>> from langgraph_patch.errors import PatchError, class_names
        >>> sorted(class_names(PatchError(), "langgraph_patch"))
        ['PatchError']
    """
    return {base.__name__ for base in type(value).__mro__ if base.__module__.startswith(package)}
