"""The option `once`: a list of names of tools, which the tools of the graph must have."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches

from langgraph_patch._text import short
from langgraph_patch.errors import OptionError, logger


def checked_names(once: object) -> tuple[str, ...]:
    """The option `once`.

    Raises:
        OptionError: If it is not a list of names of tools, each once.
    """
    names = list(once) if isinstance(once, Sequence) and not isinstance(once, str) else [0]
    if not all(isinstance(name, str) and name for name in names) or len(names) > len({*names}):
        raise OptionError(
            f"once={short(once, 80)}: expected a list of the names of tools, each once, such as "
            f"once=[{once if isinstance(once, str) else 'wire_money'!r}]."
        )
    return tuple(map(str, names))


def check_tools(names: Iterable[str], tools: Collection[str]) -> None:
    """Check that there is a tool of each name, where there are no others than these.

    Raises:
        OptionError: If there is none.
    """
    expected = f"expected one of {', '.join(map(repr, sorted(tools)))}."
    for name in (name for name in names if name not in tools):
        raise OptionError(
            f"once: no ToolNode of the graph has a tool called {name!r}: "
            f"{expected if tools else _NO_TOOLS}{_meant(name, tools)}"
        )


def warn_of_unknown(option: str, names: Iterable[str], tools: Collection[str]) -> None:
    """Say which names no known tool has: another one may come while the graph runs."""
    for name in sorted({*names} - {*tools}):
        meant = _meant(name, tools)
        logger.warning("%s: no ToolNode has a tool called %r yet.%s", option, name, meant)


def _meant(name: str, tools: Collection[str]) -> str:
    meant = get_close_matches(name, tools, 1)
    return f" Did you mean {meant[0]!r}?" if meant else ""


_NO_TOOLS = (
    "it has no ToolNode. Tools that functions of yours run are not claimed: put them in a ToolNode."
)
