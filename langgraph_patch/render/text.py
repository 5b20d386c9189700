"""Escape and shorten untrusted text: the policy of every renderer.

Ids, names and contents come from models, tools and users. Control characters could command a
terminal; invisible characters could hide text or turn its direction. Both become visible here.
"""

from __future__ import annotations

import html
import re
import unicodedata
from typing import NamedTuple

_NOT_ASCII_TEXT = re.compile(r"[^\x20-\x7e\n\t]")
# Control, format (such as a change of direction), half a character, line and paragraph breaks.
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_JOINERS = "\u200c\u200d"  # formats that emoji, Arabic and Indic scripts need


def visible(text: str) -> str:
    r"""`text` with its control characters and invisible characters written as escapes.

    Line breaks and tabs stay.

    Examples:
        >>> from langgraph_patch.render.text import visible
        >>> print(visible("a\x1b[2Jb"))
        a\x1b[2Jb
    """
    return _NOT_ASCII_TEXT.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if character in _JOINERS or unicodedata.category(character) not in _UNSAFE:
        return character
    return character.encode("unicode_escape").decode("ascii")


def one_line(text: str) -> str:
    """`visible`, with line breaks and tabs written as escapes too."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def html_text(value: object) -> str:
    """`value` as `visible` text, escaped for HTML.

    Examples:
        >>> from langgraph_patch.render.text import html_text
        >>> html_text("<b>")
        '&lt;b&gt;'
    """
    return html.escape(visible(str(value)), quote=True)


class Shortened(NamedTuple):
    """The beginning of a long text."""

    beginning: str
    note: str
    """How long the text is; empty if `beginning` is the whole text."""


def shortened(text: str, limit: int) -> Shortened:
    """`text`, cut if it is longer than `limit` characters.

    Examples:
        >>> from langgraph_patch.render.text import shortened
        >>> shortened("abcdef", 3)
        Shortened(beginning='abc…', note='(6 characters)')
    """
    if len(text) <= limit:
        return Shortened(text, "")
    return Shortened(f"{text[:limit]}…", f"({len(text):,} characters)")
