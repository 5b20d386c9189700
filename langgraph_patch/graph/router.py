"""A router of the graph with something before or after it. It adds no run to traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from langchain_core.runnables import Runnable, RunnableConfig

from langgraph_patch._sansio import GeneratorRunnable, IOGenerator, call_method

Before: TypeAlias = Callable[[Any, RunnableConfig], IOGenerator[Any]]
"""Takes the state and the config; returns where to go instead, or None. It may request I/O."""

After: TypeAlias = Callable[[Any, Any, RunnableConfig], Any]
"""Takes where the router leads, the state and the config; returns where to go."""


class Router(GeneratorRunnable):
    """A router that leads where another one leads, or elsewhere.

    Args:
        onward: The other router, or where an edge led.
        name: Its name, if `onward` is no router.
        before: Decides before the other router runs. Default: None.
        after: Changes where the other router leads. Default: None.
    """

    def __init__(
        self,
        onward: Any,
        name: str,
        *,
        before: Before | None = None,
        after: After | None = None,
    ) -> None:
        self.name = onward.name if isinstance(onward, Runnable) else name
        self._onward, self._before, self._after = onward, before, after

    def run(self, input: Any, config: RunnableConfig, **_: Any) -> IOGenerator[Any]:
        """Where to go."""
        if self._before is not None:
            target = yield from self._before(input, config)
            if target is not None:
                return target
        target = self._onward
        if isinstance(target, Runnable):
            target = yield from call_method(target, "invoke", input, config)
        return target if self._after is None else self._after(target, input, config)
