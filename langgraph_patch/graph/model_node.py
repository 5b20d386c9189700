"""The last mile: a model node that repairs what it was really given, then runs as before.

It catches what START does not see: `invoke(None)`, `Command(goto=...)`, `Send`, an edited
state, nodes that trim or summarise. What the model sees and what the state holds may be
two histories; each is repaired on its own, and only the second is written.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.errors import ParentCommand
from langgraph.types import Command, Overwrite
from pydantic import BaseModel

from langgraph_patch._langgraph import channels_of, is_for_node
from langgraph_patch._sansio import run_async, run_sync
from langgraph_patch.graph.message_equality import is_same
from langgraph_patch.graph.patch_node import PatchNode, messages_in, value_of
from langgraph_patch.history.patch import Patch
from langgraph_patch.history.patcher import as_messages

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
        allow_pending: Whether calls at the tail are left to the runnable.
    """

    def __init__(
        self,
        inner: Runnable[Any, Any],
        node: PatchNode,
        *,
        persist: bool,
        allow_pending: bool = False,
    ) -> None:
        super().__init__(inner.invoke, inner.ainvoke, name=inner.get_name())
        self._inner = inner
        self._node = node
        self._persist = persist
        self._allow_pending = allow_pending
        # By these LangGraph tells the cache entries of one function from those of another.
        wrapped = isinstance(inner, LastMile)
        owner = inner if wrapped else getattr(inner, "func", None) or inner
        for name in ("__module__", "__qualname__"):
            if (value := getattr(owner, name, None)) is not None:
                setattr(self, name, value)

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
            key: run_sync(self._node.repair(history, config, allow_pending=self._allow_pending))
            for key, history in damaged.items()
        }
        update = self._update(damaged, patches, config)
        try:
            output = self._inner.invoke(_shown(input, patches), config, **kwargs)
        except ParentCommand as handed:
            self._hand_on(handed, update, patches, config)
            raise
        return self._joined(update, output, patches)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        """As `invoke`."""
        config = config or {}
        damaged = self._damaged(input, config)
        if not damaged:
            return await self._inner.ainvoke(input, config, **kwargs)
        patches = {
            key: await run_async(
                self._node.repair(history, config, allow_pending=self._allow_pending)
            )
            for key, history in damaged.items()
        }
        update = self._update(damaged, patches, config)
        try:
            output = await self._inner.ainvoke(_shown(input, patches), config, **kwargs)
        except ParentCommand as handed:
            self._hand_on(handed, update, patches, config)
            raise
        return self._joined(update, output, patches)

    async def astream(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Stream as the node does, since LangGraph runs nodes so for `astream_events`.

        A repair and an answer are one output: a node that repairs answers as a whole.
        """
        if self._damaged(input, config or {}):
            yield await self.ainvoke(input, config, **kwargs)
            return
        async for part in self._inner.astream(input, config, **kwargs):
            yield part

    # All else as any runnable does it, and not as a `RunnableLambda`, which has runs of its own.

    def stream(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Give the node's output, as a whole."""
        yield from Runnable.stream(self, input, config, **kwargs)

    def transform(
        self,
        input: Iterator[Any],  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Give the node's output for an input that comes in parts."""
        yield from Runnable.transform(self, input, config, **kwargs)

    async def atransform(
        self,
        input: AsyncIterator[Any],  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """As `transform`."""
        async for part in Runnable.atransform(self, input, config, **kwargs):
            yield part

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
        return self._node.is_damaged(history, allow_pending=self._allow_pending)

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

    def _joined(
        self, update: Command[Any] | None, output: Any, patches: Mapping[str, Patch]
    ) -> Any:
        """The repair and the node's own output, as the one flat list that LangGraph accepts."""
        if not self._persist:
            return _own(output, self._node.messages_key, _originals(patches.values()))
        if update is None:
            return output
        if output is None:
            return update
        return [update, *output] if isinstance(output, list | tuple) else [update, output]

    def _hand_on(
        self,
        handed: ParentCommand,
        update: Command[Any] | None,
        patches: Mapping[str, Patch],
        config: RunnableConfig,
    ) -> None:
        """Let a nested graph's command to this one bring the repair, as an output would."""
        command: Command[Any] = handed.args[0]
        if not self._persist:
            own = _own(command, self._node.messages_key, _originals(patches.values()))
            handed.args = (own,)
        elif update is not None and is_for_node(command.graph, config):
            said = _pairs(command.update)
            if said is not None:
                mended: Any = update.update  # pairs too
                handed.args = (replace(command, update=[*mended, *said]),)


def _same(some: Sequence[BaseMessage], others: Sequence[BaseMessage]) -> bool:
    """Whether two lists hold the very same messages."""
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


# --- what the model is shown, and what it may write of that ------------------------------


def _shown(state: Any, patches: Mapping[str, Patch]) -> Any:
    """A copy of `state` with the repaired histories."""
    values = {key: patch.messages for key, patch in patches.items() if key != _HELD}
    return _with_values(state, values)


def _with_values(state: Any, values: Mapping[str, Any]) -> Any:
    """A copy of a state, of the same kind."""
    if isinstance(state, dict):
        return {**state, **values}
    if isinstance(state, BaseModel):
        return state.model_copy(update=values)
    copied = copy.copy(state)
    for key, value in values.items():
        object.__setattr__(copied, key, value)  # a state may be a frozen dataclass
    return copied


_Originals: TypeAlias = Mapping[object, tuple[BaseMessage, BaseMessage | None]]
"""What a repair made, by its name -> as the model was shown it, and as the state holds it."""


def _originals(patches: Iterable[Patch]) -> _Originals:
    made: dict[object, tuple[BaseMessage, BaseMessage | None]] = {}
    for patch in patches:
        held = {_name_of(message): message for message in patch.before}
        for shown in patch.messages:
            original = held.get(_name_of(shown))
            if original is not shown:
                made[_name_of(shown)] = shown, original
    return made


def _name_of(message: Any) -> object:
    known = getattr(message, "id", None)
    return id(message) if known is None else known


def _own(output: Any, key: str, originals: _Originals) -> Any:
    """A node's output as if it had been shown what the state holds: else it would write repairs."""
    if isinstance(output, Command):
        return replace(output, update=_own(output.update, key, originals))
    if isinstance(output, tuple) and output and isinstance(output[0], str):
        return (key, *(_restored(v, originals) for v in output[1:])) if output[0] == key else output
    if isinstance(output, list | tuple):
        return [_own(part, key, originals) for part in output]
    value = value_of(output, key)
    return output if value is None else _with_values(output, {key: _restored(value, originals)})


def _restored(value: Any, originals: _Originals) -> Any:
    if isinstance(value, Overwrite):
        return Overwrite(_restored(value.value, originals))
    if not isinstance(value, list):
        return value
    restored = []
    for message in value:
        shown, original = originals.get(_name_of(message), (None, message))
        if shown is None or original is None or is_same(message, shown):
            message = original  # noqa: PLW2901 - None: no state holds it, nor can it be removed
        if message is not None:
            restored.append(message)
    return restored


def _pairs(update: Any) -> list[Any] | None:
    """An update as pairs of key and value; None if it has another form."""
    if update is None:
        return []
    if isinstance(update, dict):
        return list(update.items())
    return list(update) if isinstance(update, list | tuple) else None
