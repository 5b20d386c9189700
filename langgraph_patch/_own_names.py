"""Show only what our public classes define: `help` and `dir` leave out inherited names.

Our nodes, middleware and readers are classes of LangChain and LangGraph, which have up to a
hundred methods of their own. `help(PatchNode)` would have 1,200 lines. The standard library does
the same for `enum.Enum`.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Iterable


class OwnNames(ABCMeta):
    """A metaclass: `dir` of a class lists the public names that it defines; `help` shows these.

    A subclass lists those of both. All other names work as always, and `dir` of an instance
    lists them.

    Examples:
        >>> from collections.abc import Iterator
        >>> from langgraph_patch._own_names import OwnNames
        >>> class Numbers(Iterator[int], metaclass=OwnNames):
        ...     def __next__(self) -> int:
        ...         return 1
        ...     def close(self) -> None: ...
        >>> dir(Numbers), "__iter__" in dir(Numbers())
        (['close'], True)
    """

    def __dir__(cls) -> Iterable[str]:
        own = (name for base in cls.__mro__ if isinstance(base, OwnNames) for name in vars(base))
        return {name for name in own if not name.startswith("_")}
