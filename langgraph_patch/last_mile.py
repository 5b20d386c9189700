"""The last mile: a model node that repairs what it was really given, then runs as before.

It catches what START does not see: `invoke(None)`, `Command(goto=...)`, `Send`, an edited
state, nodes that trim or summarise. What the model sees and what the state holds may be
two histories; each is repaired on its own, and only the second is written.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.types import Command
from pydantic import BaseModel

from langgraph_patch.changes import Patch
from langgraph_patch.host import channels_of
from langgraph_patch.messages import as_messages
from langgraph_patch.node import PatchNode, messages_in, value_of

MODEL_INPUT = "llm_input_messages"
"""Where a `pre_model_hook` puts a history that is for the model only, never for the state."""

_HELD = "\0held"
"""The history that the state holds, where it is not the one that the model was given."""


class LastMile(RunnableLambda[Any, Any]):
    """Wraps the runnable of a model node.

    A `RunnableLambda`, because that is where LangGraph looks for subgraphs (`deps`). All
    that runs is its own, so that no run of its own shows in traces, events or streams.

    Args:
        inner: The runnable of the node.
        node: Whose options hold, and who repairs and writes.
        persist: Whether repairs are written into the state.
    """

    def __init__(self, inner: Runnable[Any, Any], node: PatchNode, *, persist: bool) -> None:
        super().__init__(inner.invoke, inner.ainvoke, name=inner.get_name())
        self._inner = inner
        self._node = node
        self._persist = persist

    @property
    def deps(self) -> list[Runnable[Any, Any]]:
        """The runnable inside."""
        return [self._inner]

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        """Run the node on a sound history; return the repair, if any, before its output."""
        config = config or {}
        damaged = self._damaged(input, config)
        if not damaged:
            return self._inner.invoke(input, config, **kwargs)
        patches = {
            key: self._node.repair(history, config, allow_pending=False)
            for key, history in damaged.items()
        }
        update = self._update(damaged, patches, config)
        return _joined(update, self._inner.invoke(_shown(input, patches), config, **kwargs))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        """As `invoke`."""
        config = config or {}
        damaged = self._damaged(input, config)
        if not damaged:
            return await self._inner.ainvoke(input, config, **kwargs)
        patches = {
            key: await self._node.arepair(history, config, allow_pending=False)
            for key, history in damaged.items()
        }
        update = self._update(damaged, patches, config)
        return _joined(update, await self._inner.ainvoke(_shown(input, patches), config, **kwargs))

    # A node answers as a whole; tokens are streamed by the model inside it.
    stream = Runnable.stream
    astream = Runnable.astream
    transform = Runnable.transform
    atransform = Runnable.atransform

    def _damaged(self, state: Any, config: RunnableConfig) -> dict[str, list[BaseMessage]]:
        """The damaged histories among what the model sees and, only then, what is held."""
        seen = {
            key: messages_in(state, key)
            for key in (self._node.messages_key, MODEL_INPUT)
            if value_of(state, key) is not None
        }
        damaged = {key: seen[key] for key in seen if self._is_damaged(seen[key])}
        if damaged and self._persist:
            held = self._held(config)
            given = seen.get(self._node.messages_key)
            if held and not (given and _same(held, given)) and self._is_damaged(held):
                damaged[_HELD] = held
        return damaged

    def _is_damaged(self, history: Sequence[BaseMessage]) -> bool:
        return self._node.is_damaged(history, allow_pending=False)

    def _held(self, config: RunnableConfig) -> list[BaseMessage]:
        channel = channels_of(config).get(self._node.messages_key)
        return as_messages(channel.get()) if channel is not None and channel.is_available() else []

    def _update(
        self,
        damaged: Mapping[str, list[BaseMessage]],
        patches: Mapping[str, Patch],
        config: RunnableConfig,
    ) -> Command[Any] | None:
        """The write that mends the state; None where only the model's view was mended."""
        held = self._held(config) if self._persist else []
        for key in (_HELD, self._node.messages_key):
            if key in patches and held and _same(held, damaged[key]):
                return self._node.write(patches[key], held, config, alone=False)
        for patch in patches.values():
            self._node.announce(patch, config, written=False)
        return None


def _same(some: Sequence[BaseMessage], others: Sequence[BaseMessage]) -> bool:
    """Whether two lists hold the very same messages."""
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


def _shown(state: Any, patches: Mapping[str, Patch]) -> Any:
    """A copy of `state` with the repaired histories, of the same kind."""
    values = {key: patch.messages for key, patch in patches.items() if key != _HELD}
    if isinstance(state, dict):
        return {**state, **values}
    if isinstance(state, BaseModel):
        return state.model_copy(update=values)
    shown = copy.copy(state)
    for key, value in values.items():
        object.__setattr__(shown, key, value)  # a state may be a frozen dataclass
    return shown


def _joined(update: Command[Any] | None, output: Any) -> Any:
    """The repair and the node's own output, as the one flat list that LangGraph accepts."""
    if update is None:
        return output
    if output is None:
        return update
    return [update, *output] if isinstance(output, list | tuple) else [update, output]
