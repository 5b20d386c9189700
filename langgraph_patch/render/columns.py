"""Lay out text in columns, as lines of pieces with a style each. It needs no other package.

A style is a name such as `red` or `bold`; who prints a line decides whether it has colours.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from langgraph_patch.render.text import visible

GAP = "  "
"""What is between two columns."""


class Piece(NamedTuple):
    """A text with one style."""

    text: str
    style: str = ""


Line: TypeAlias = Sequence[Piece]
"""The pieces of one line, from left to right."""


def plain(line: Line) -> str:
    """A line without styles, and without blanks at its end."""
    return "".join(piece.text for piece in line).rstrip()


def width_of(text: str) -> int:
    """How many columns of a terminal a text takes.

    Examples:
        >>> from langgraph_patch.render.columns import width_of
        >>> width_of("ok"), width_of("好")
        (2, 2)
    """
    return len(text) if text.isascii() else sum(map(_width_of_character, text))


def _width_of_character(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, none wider than `width`, broken between words where that is possible.

    A line that continues another has its indentation.

    Examples:
        >>> from langgraph_patch.render.columns import wrapped
        >>> wrapped("a call without a result", 10)
        ['a call', 'without a', 'result']
    """
    lines: list[str] = []
    for paragraph in text.expandtabs(4).split("\n"):
        text = paragraph.lstrip(" ")
        indent = min(len(paragraph) - len(text), width // 2)
        lines += [" " * indent + line for line in _wrapped_words(text, width - indent)]
    return lines


def _wrapped_words(text: str, width: int) -> Iterator[str]:
    line, used = "", 0
    for word in text.split(" "):
        size = width_of(word)
        if line and used + 1 + size > width:
            yield line
            line, used = "", 0
        elif line:
            line, used = f"{line} ", used + 1
        while size > width:
            head = _head(word, max(1, width - used))
            yield line + head
            line, used, word = "", 0, word[len(head) :]  # noqa: PLW2901 - the rest of it
            size = width_of(word)
        line, used = line + word, used + size
    yield line


def _head(word: str, width: int) -> str:
    """The beginning of a word that fits, at least one character."""
    used = 0
    for place, character in enumerate(word):
        used += _width_of_character(character)
        if used > width and place:
            return word[:place]
    return word


def row(cells: Sequence[Iterable[Piece]], widths: Sequence[int]) -> list[Line]:
    """The lines of one row: each cell is wrapped to its column.

    Args:
        cells: Each cell as pieces; a piece begins on a line of its own. The pieces are escaped
            here.
        widths: The width of each column.

    Examples:
        >>> from langgraph_patch.render.columns import Piece, plain, row
        >>> for line in row([[Piece("1")], [Piece("a call without a result")]], [3, 12]):
        ...     print(plain(line))
        1    a call
             without a
             result
    """
    columns = [list(_lines_of_cell(cell, width)) for cell, width in zip(cells, widths, strict=True)]
    return [
        _joined([column[place] if place < len(column) else Piece("") for column in columns], widths)
        for place in range(max(map(len, columns)))
    ]


def _lines_of_cell(cell: Iterable[Piece], width: int) -> Iterator[Piece]:
    for piece in cell:
        for text in wrapped(visible(piece.text), width):
            yield Piece(text, piece.style)


def _joined(pieces: Sequence[Piece], widths: Sequence[int]) -> Line:
    line = []
    for place, (piece, width) in enumerate(zip(pieces, widths, strict=True)):
        line.append(piece)
        if place < len(pieces) - 1:
            line.append(Piece(" " * max(0, width - width_of(piece.text)) + GAP))
    return line
