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

Behind the exceptions: text of others that is safe to show, and whose failure an error is.
"""

import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from unicodedata import category

_MAY_BE_SECRET = re.compile(r"@|://|password\s*=", re.IGNORECASE)


def brief(error: BaseException) -> str:
    """The type and the message of an exception on one line, at most 200 characters of it."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text if text == text[:200] else f'{text[:200]}…'}"


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


# --- untrusted text and passwords --------------------------------------------------------

# Control, format (such as a change of direction), half a character, line and paragraph breaks.
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_SAFE = "\n\t\u200c\u200d"  # the last two are formats that emoji, Arabic and Indic scripts need


def visible(text: str) -> str:
    r"""`text` with its control characters and invisible characters written as escapes.

    Line breaks and tabs stay.

    Examples:
        >>> from langgraph_patch.errors import visible
        >>> print(visible("a\x1b[2Jb"))
        a\x1b[2Jb
    """
    return "".join(
        each.encode("unicode_escape").decode()
        if category(each) in _UNSAFE and each not in _SAFE
        else each
        for each in text
    )


def one_line(text: str) -> str:
    """`visible`, with line breaks and tabs written as escapes too."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


_SECRETS = (
    re.compile(r"(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|\S+)", re.IGNORECASE),
    re.compile(r"([a-z][a-z0-9+.-]*://).*@[^\s'\"]*", re.IGNORECASE | re.DOTALL),
    re.compile(r"(postgres[a-z0-9+.-]*:/+)[^\s'\"/][^\s'\"]*", re.IGNORECASE),
    re.compile(r"()[^\s'\"/]*:[^\s'\"]*@[^\s'\"]*"),
)


def masked(text: str) -> str:
    """`text` without the passwords of URIs and of libpq's `password=...`.

    Examples:
        >>> from langgraph_patch.errors import masked
        >>> masked("not postgresql://bob:s3cr3t@db/x and not host=db password='s 3' user=bob")
        'not postgresql://*** and not host=db password=*** user=bob'
    """
    for secret in _SECRETS:
        text = secret.sub(r"\1***", text)
    return text


def say(text: str) -> None:
    """Print one line to standard error, without passwords; a terminal breaks it between words."""
    line = f"langgraph-patch: {one_line(masked(text))}"
    if sys.stderr.isatty():
        width = max(40, shutil.get_terminal_size().columns)
        line = textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
    with suppress(BrokenPipeError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


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
