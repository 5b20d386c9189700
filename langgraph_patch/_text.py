"""Text of others that is safe to show: short, on one line, without passwords and control codes.

The texts and tables of this package itself stand in TOML files beside its modules (`read_table`).
"""

import re
import shutil
import sys
import textwrap
import tomllib
from contextlib import suppress
from importlib.resources import files
from typing import Any
from unicodedata import category

_MAY_BE_SECRET = re.compile(r"@|://|password\s*=", re.IGNORECASE)


def read_table(package: str, name: str) -> Any:
    """What a TOML file of this package holds."""
    return tomllib.loads(files(package).joinpath(name).read_text("utf-8"))


def cut(text: str, limit: int = 200) -> str:
    """The text, at most `limit` characters of it; `…` shows that there is more."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def short(value: object, limit: int = 200) -> str:
    """The `repr` of a value for an error message, cut if it is long.

    Examples:
        >>> from langgraph_patch._text import short
        >>> short("a long text", 8)
        "'a long…"
    """
    return cut(repr(value), limit)


def brief(error: BaseException) -> str:
    """The type of an exception, and on the same line 200 characters of its text at most.

    A text that may hold a password is left out: a driver may repeat the URI that it was given.
    """
    name, text = type(error).__name__, " ".join(str(error).split())
    is_shown = not may_hold_password(text)
    return f"{name}: {cut(text, 201)}" if is_shown else f"{name} with a text {NOT_REPEATED}"


def quoted(value: object) -> str:
    """The `repr` of a value for an error message, unless it may hold a password.

    Args:
        value: Any value, such as a wrong argument.

    Examples:
        >>> from langgraph_patch._text import quoted
        >>> quoted("threads.db"), quoted("postgresql://bob:s3cret@db/app")
        ("'threads.db'", 'a value that is not repeated here, because it may hold a password,')
    """
    return f"a value {NOT_REPEATED}," if may_hold_password(repr(value)) else short(value)


NOT_REPEATED = "that is not repeated here, because it may hold a password"


def may_hold_password(text: str) -> bool:
    """Whether a text has one of the signs of a URI or of libpq's `password=...`."""
    return bool(_MAY_BE_SECRET.search(text))


_ADDRESS = re.compile(
    r"(\w+://)(?:[^@/?#]*@)?((?:[\w.-]*|\[[\da-f:.]*\])(?::\d*)?(?:/[^@?#]*)?)(?:\?[^@#]*)?"
)


def database_name(location: str) -> str:
    """A path or a URI without user, password and parameters.

    Examples:
        >>> from langgraph_patch._text import database_name
        >>> database_name("postgresql://bob:s3cret@db.example/app?sslmode=require")
        'postgresql://db.example/app'
    """
    parts = _ADDRESS.fullmatch(location)
    if parts:
        return parts[1] + parts[2]
    return NO_NAME if may_hold_password(location) else location


NO_NAME = "the database"
"""The name of one whose URI cannot be split for certain: any part of it may be of a password."""


# Control, format (such as a change of direction), half a character, line and paragraph breaks.
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_SAFE = "\n\t\u200c\u200d"  # the last two are formats that emoji, Arabic and Indic scripts need


def visible(text: str) -> str:
    r"""`text` with its control characters and invisible characters written as escapes.

    Line breaks and tabs stay.

    Examples:
        >>> from langgraph_patch._text import visible
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


def labelled(value: object, separator: str = ": ") -> str:
    """A `repr` of less than 200 characters: the type of a value, and its `str` on one line."""
    text = cut(one_line(f"{type(value).__name__}{separator}{value}"), 197)
    return f"<{text}>"


def say(text: str, command: str = "") -> None:
    """Print one line to standard error; a terminal breaks it between words.

    Args:
        text: The text, without a password.
        command: A command without a password at its end. A terminal shows it on a line of its own,
            so that it can be copied. Default: none.
    """
    line, space = f"langgraph-patch: {one_line(text)}", " "
    if sys.stderr.isatty():
        width, space = max(40, shutil.get_terminal_size().columns), "\n  "
        line = textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
    line += command and f"{space}{one_line(command)}"
    with suppress(BrokenPipeError):
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
