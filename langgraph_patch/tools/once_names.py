"""The option `once`: a list of names of tools, which the tools of the graph must have."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches

from langgraph_patch._text import short
from langgraph_patch.errors import OptionError


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


def check_tools(names: Collection[str], tools: Collection[str], *, are_all: bool) -> list[str]:
    """The names that no known tool has.

    Args:
        names: The option `once`.
        tools: The names of the known tools.
        are_all: Whether there are no other tools.

    Raises:
        OptionError: If there is no tool with a name, or if a name is like that of a known tool.
    """
    unknown = [name for name in names if name not in tools]
    for name in unknown:
        meant = get_close_matches(name, tools, 1)
        if meant or are_all:
            raise OptionError(
                f"once: no ToolNode of the graph has a tool called {name!r}: "
                + (
                    f"expected one of {', '.join(map(repr, sorted(tools)))}."
                    if tools
                    else _NO_TOOLS
                )
                + (f" Did you mean {meant[0]!r}?" if meant else "")
            )
    return unknown


_NO_TOOLS = (
    "it has no ToolNode. Tools that functions of yours run are not claimed: put them in a ToolNode."
)
