"""The model node wrapper: it repairs the input of a node, then runs the node.

It covers what the entry check does not see: `invoke(None)`, `Command(goto=...)`, `Send`, an
edited state, and nodes that trim or summarize the history. The history in the node's input and
the history in the state may differ. Each is repaired on its own, and only the repair of the
state's history is written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.errors import ParentCommand
from langgraph.pregel import Pregel
from langgraph.types import Command

from langgraph_patch._langgraph import (
    channels_of,
    is_for_node,
    runs_alone,
    stored_value,
    task_kind,
)
from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.graph.effects import is_written_once, restored_values
from langgraph_patch.graph.guarded_node import GuardedNode
from langgraph_patch.graph.message_equality import are_identical
from langgraph_patch.graph.original_messages import original_messages, restore_output
from langgraph_patch.graph.patch_node import PatchNode, Repair
from langgraph_patch.graph.state_values import (
    get_messages,
    get_value,
    replace_values,
    written_keys,
)
from langgraph_patch.history.pairing import Reading
from langgraph_patch.history.patch import Patch
from langgraph_patch.history.patcher import as_messages

MODEL_INPUT = "llm_input_messages"
"""The state key in which a `pre_model_hook` returns a history for the model only."""


@dataclass(frozen=True, slots=True)
class _Damage:
    """The damaged histories of one run of the node.

    Attributes:
        input: Those in the node's input, by their state keys.
        stored: That in the state, if it is to be repaired; the same object as in `input` if both
            histories are the same.
    """

    input: dict[str, Reading]
    stored: Reading | None


class ModelNodeWrapper(RunnableLambda[Any, Any]):
    """Wraps the runnable of a model node.

    It is a `RunnableLambda`, because LangGraph looks for subgraphs in its `deps`. It overrides
    every method that runs something, so that it adds no run to traces, events and streams.

    Args:
        inner: The runnable of the node.
        node: Supplies the options, repairs and writes.
        persist: Whether to write repairs to the state.
    """

    def __init__(self, inner: Runnable[Any, Any], node: PatchNode, *, persist: bool) -> None:
        super().__init__(inner.invoke, inner.ainvoke, name=inner.get_name())
        self._inner = inner
        self._guarded = GuardedNode(inner, (node.messages_key, MODEL_INPUT), node.close_calls)
        self._node = node
        self._persist = persist
        # LangGraph computes the key of a cached result from these attributes.
        wrapped = isinstance(inner, ModelNodeWrapper)
        function = inner if wrapped else getattr(inner, "func", None) or inner
        for attribute in ("__module__", "__qualname__"):
            if (value := getattr(function, attribute, None)) is not None:
                setattr(self, attribute, value)

    @property
    def deps(self) -> list[Runnable[Any, Any]]:
        """The runnable of the node."""
        return [self._inner]

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        """Run the node on a valid history; return the repair, if any, before its output."""
        if (damage := self._find_damage(input, config)) is None:
            return run_sync(self._guarded.run(input, config or {}, kwargs))
        return run_sync(self._repair_and_run(input, config or {}, kwargs, damage))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:  # noqa: A002
        """Do the same as `invoke`, asynchronously."""
        if (damage := self._find_damage(input, config)) is None:
            return await run_async(self._guarded.run(input, config or {}, kwargs))
        return await run_async(self._repair_and_run(input, config or {}, kwargs, damage))

    async def astream(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Stream as the node does, because LangGraph streams the nodes for `astream_events`.

        A repair and the node's output are one output, so a node that repairs does not stream.
        """
        if (damage := self._find_damage(input, config)) is not None:
            yield await run_async(self._repair_and_run(input, config or {}, kwargs, damage))
            return
        async for part in self._guarded.astream(input, config or {}, kwargs):
            yield part

    # The other methods are those of `Runnable`: those of `RunnableLambda` add a run.

    def stream(
        self,
        input: Any,  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Yield the whole output of `invoke`."""
        yield from Runnable.stream(self, input, config, **kwargs)

    def transform(
        self,
        input: Iterator[Any],  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Yield the whole output of `invoke`, for an input that comes in parts."""
        yield from Runnable.transform(self, input, config, **kwargs)

    async def atransform(
        self,
        input: AsyncIterator[Any],  # noqa: A002
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Do the same as `transform`, asynchronously."""
        async for part in Runnable.atransform(self, input, config, **kwargs):
            yield part

    # --- the histories -------------------------------------------------------------------

    def _find_damage(self, state: Any, config: RunnableConfig | None) -> _Damage | None:
        """The damaged histories, or None if the node's input has none."""
        histories = {
            key: get_messages(state, key)
            for key in (self._node.messages_key, MODEL_INPUT)
            if get_value(state, key) is not None
        }
        readings = {
            key: self._node.read(history, recheck=False) for key, history in histories.items()
        }
        damaged = {key: reading for key, reading in readings.items() if reading is not None}
        if not damaged:
            return None
        stored = self._stored_history(config or {})
        if are_identical(stored, histories.get(self._node.messages_key, [])):
            return _Damage(damaged, damaged.get(self._node.messages_key))
        return _Damage(damaged, self._node.read(stored, recheck=False))

    def _stored_history(self, config: RunnableConfig) -> Sequence[BaseMessage]:
        """The history in the state, or an empty list if no repair of it is to be written."""
        stored = stored_value(config, self._node.messages_key) if self._persist else None
        return [] if stored is None else as_messages(stored)

    # --- a damaged run -------------------------------------------------------------------

    def _repair_and_run(
        self, state: Any, config: RunnableConfig, kwargs: Mapping[str, Any], damage: _Damage
    ) -> IOGenerator[Any]:
        restore = damage.stored is not None and runs_alone(config)
        repairs: dict[str, Repair] = {}
        for key, reading in damage.input.items():
            repairs[key] = yield from self._node.repair(reading, config, restore=restore)
        patches = {key: repair.patch for key, repair in repairs.items()}
        stored = yield from self._stored_repair(damage, repairs, config, restore=restore)
        update = self._write(stored, patches, config)
        repaired = replace_values(
            state,
            {
                **_restored_input(state, stored, config),
                **{key: patch.messages for key, patch in patches.items()},
            },
        )
        try:
            output = yield from self._guarded.run(repaired, config, kwargs)
        except ParentCommand as error:
            error.args = (self._parent_command(error.args[0], update, patches, config),)
            raise
        return self._output(output, self._without_own(update, stored, output, config), patches)

    def _stored_repair(
        self,
        damage: _Damage,
        repairs: Mapping[str, Repair],
        config: RunnableConfig,
        *,
        restore: bool,
    ) -> IOGenerator[Repair | None]:
        """The repair to write; None if only the node's input is repaired."""
        if damage.stored is None:
            return None
        key = self._node.messages_key
        if damage.input.get(key) is damage.stored:
            return repairs[key]
        return (yield from self._node.repair(damage.stored, config, restore=restore))

    def _write(
        self, stored: Repair | None, patches: Mapping[str, Patch], config: RunnableConfig
    ) -> Command[Any] | None:
        """The state update that writes the repair; None if only the node's input is repaired."""
        if stored is not None:
            return self._node.write(stored, config, alone=False)
        for patch in patches.values():
            self._node.report(patch, config, written=False)
        return None

    def _without_own(
        self,
        update: Command[Any] | None,
        stored: Repair | None,
        output: Any,
        config: RunnableConfig,
    ) -> Command[Any] | None:
        """The update without restored keys that the node writes itself.

        A subgraph returns the restored values that it has read.
        """
        if update is None or stored is None or not stored.restored:
            return update
        channels, written = channels_of(config), written_keys(output)
        dropped = {
            key
            for key, _ in stored.restored
            if key in written
            and (isinstance(self._inner, Pregel) or is_written_once(channels.get(key)))
        }
        return replace(update, update=[p for p in update.update or () if p[0] not in dropped])

    def _output(
        self, output: Any, repair: Command[Any] | None, patches: Mapping[str, Patch]
    ) -> Any:
        """The repair and the node's output, as one flat list that LangGraph accepts."""
        if not self._persist:
            return self._without_repairs(output, patches)
        if repair is None:
            return output
        if output is None:
            return repair
        return [repair, *output] if isinstance(output, list | tuple) else [repair, output]

    def _parent_command(
        self,
        command: Command[Any],
        repair: Command[Any] | None,
        patches: Mapping[str, Patch],
        config: RunnableConfig,
    ) -> Command[Any]:
        """The command that a nested graph raised, with the repair, as `_output` adds it."""
        if not self._persist:
            restored: Command[Any] = self._without_repairs(command, patches)
            return restored
        update = _update_pairs(command.update)
        if repair is None or update is None or not is_for_node(command.graph, config):
            return command
        return replace(command, update=[*(_update_pairs(repair.update) or ()), *update])

    def _without_repairs(self, output: Any, patches: Mapping[str, Patch]) -> Any:
        originals = original_messages(patches.values())
        return restore_output(output, self._node.messages_key, originals)


def _restored_input(state: Any, stored: Repair | None, config: RunnableConfig) -> dict[str, Any]:
    """The restored values for the input of the node.

    LangGraph leaves a key without a value out of a dict. What a `Send` carries is left as it is.
    """
    if stored is None or not stored.restored or task_kind(config) != "node":
        return {}
    values = restored_values(channels_of(config), stored.restored)
    reads_all = isinstance(state, dict)
    return {key: value for key, value in values.items() if reads_all or hasattr(state, key)}


def _update_pairs(update: Any) -> list[Any] | None:
    """The update of a `Command` as pairs of key and value; None if it has another form."""
    if update is None:
        return []
    if isinstance(update, dict):
        return list(update.items())
    return list(update) if isinstance(update, list | tuple) else None
