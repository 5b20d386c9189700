"""Text from strangers, made fit for a terminal."""

from __future__ import annotations

import unicodedata


def visible(text: str) -> str:
    r"""`text` without anything that a terminal would obey, or that hides or turns text.

    Example:
        >>> from langgraph_patch.render.text import visible
        >>> print(visible("a\x1b[2Jb"))
        a\x1b[2Jb
    """
    return "".join(c if c == "\n" or _is_shown(c) else _escaped(c) for c in text)


def one_line(text: str) -> str:
    """`visible`, on one line."""
    return visible(text).replace("\n", "\\n")


def _is_shown(character: str) -> bool:
    # Cc: control; Cf: formats, such as those that turn the direction; Cs: halves; Zl, Zp: breaks
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
