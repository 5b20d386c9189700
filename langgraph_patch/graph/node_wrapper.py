"""The node wrapper: it repairs the input of a node, then runs the node.

It covers what the entry check does not see: `invoke(None)`, `Command(goto=...)`, `Send`, an
edited state, and nodes that trim or summarize the history. A model node writes the repair to the
state. Around any other node only the input is repaired, and what it returns is what the bare node
would return.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.errors import ParentCommand
from langgraph.pregel import Pregel
from langgraph.types import Command

from langgraph_patch._langgraph import channels_of, is_for_node, runs_alone, task_kind
from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.graph.apply_repair import report, write_repair
from langgraph_patch.graph.effects import StateWrites, is_written_once, restored_values
from langgraph_patch.graph.guarded_node import GuardedNode
from langgraph_patch.graph.histories import MODEL_INPUT, Damage, Histories
from langgraph_patch.graph.original_messages import restore_output
from langgraph_patch.graph.repairer import Repair
from langgraph_patch.graph.shown_update import new_messages, show_repair
from langgraph_patch.graph.state_values import (
    is_root_output,
    replace_values,
    written_keys,
)
from langgraph_patch.history.patch import Patch


class NodeWrapper(RunnableLambda[Any, Any]):
    """Wraps the runnable of a node.

    It is a `RunnableLambda`, because LangGraph looks for subgraphs in its `deps`. It overrides
    every method that runs something, so that it adds no run to traces, events and streams.

    Args:
        inner: The runnable of the node.
        histories: The histories that the node may read, and who repairs them.
    """

    def __init__(self, inner: Runnable[Any, Any], histories: Histories) -> None:
        super().__init__(inner.invoke, inner.ainvoke, name=inner.get_name())
        self._inner = inner
        self._histories = histories
        self._guarded = GuardedNode(
            inner,
            histories.keys,
            MODEL_INPUT,
            histories.repairers[0].close_calls if histories.repairers else list,
        )
        # LangGraph computes the key of a cached result from these attributes.
        wrapped = isinstance(inner, NodeWrapper)
        function = inner if wrapped else getattr(inner, "func", None) or inner
        for attribute in ("__module__", "__qualname__"):
            if (value := getattr(function, attribute, None)) is not None:
                setattr(self, attribute, value)

    @property
    def deps(self) -> list[Runnable[Any, Any]]:
        """The runnable of the node."""
        return [self._inner]

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the node on a valid history; return the repair, if any, before its output."""
        if (damage := self._histories.find_damage(input, config or {})) is None:
            return run_sync(self._guarded.run(input, config or {}, kwargs))
        return run_sync(self._repair_and_run(input, config or {}, kwargs, damage))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Do the same as `invoke`, asynchronously."""
        if (damage := self._histories.find_damage(input, config or {})) is None:
            return await run_async(self._guarded.run(input, config or {}, kwargs))
        return await run_async(self._repair_and_run(input, config or {}, kwargs, damage))

    async def astream(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Stream as the node does, because LangGraph streams the nodes for `astream_events`.

        A repair and the node's output are one output, so a node that repairs does not stream.
        """
        if (damage := self._histories.find_damage(input, config or {})) is not None:
            yield await run_async(self._repair_and_run(input, config or {}, kwargs, damage))
            return
        async for part in self._guarded.astream(input, config or {}, kwargs):
            yield part

    # The other methods are those of `Runnable`: those of `RunnableLambda` add a run.

    def stream(
        self,
        input: Any,
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Yield the whole output of `invoke`."""
        yield from Runnable.stream(self, input, config, **kwargs)

    def transform(
        self,
        input: Iterator[Any],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[Any]:
        """Yield the whole output of `invoke`, for an input that comes in parts."""
        yield from Runnable.transform(self, input, config, **kwargs)

    async def atransform(
        self,
        input: AsyncIterator[Any],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[Any]:
        """Do the same as `transform`, asynchronously."""
        async for part in Runnable.atransform(self, input, config, **kwargs):
            yield part

    # --- a damaged run -------------------------------------------------------------------

    def _repair_and_run(
        self, state: Any, config: RunnableConfig, kwargs: Mapping[str, Any], damage: Damage
    ) -> IOGenerator[Any]:
        repairs, stored = yield from self._repairs(damage, config)
        update = self._write(stored, repairs, config)
        patches = {key: repair.patch for key, repair in repairs.items()}
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
            command = self._without_repairs(error.args[0], patches, damage.writes)
            error.args = (self._with_repair(command, update, stored, config),)
            raise
        output = self._without_repairs(output, patches, damage.writes)
        update = self._without_own(update, stored, output, config)
        self._show(update, stored, output, config)
        return self._after_repair(update, output)

    def _repairs(
        self, damage: Damage, config: RunnableConfig
    ) -> IOGenerator[tuple[dict[str, Repair], dict[str, Repair]]]:
        """The repairs of the node's input, and those to write, by their state keys."""
        restore = bool(damage.stored) and runs_alone(config)
        repairs: dict[str, Repair] = {}
        for key, reading in damage.input.items():
            repairer = self._histories.repairer(key)
            repairs[key] = yield from repairer.repair(reading, config, restore=restore)
        stored: dict[str, Repair] = {}
        for key, reading in damage.stored.items():
            if damage.input.get(key) is reading:
                repair = repairs[key]
            else:
                repairer = self._histories.repairer(key)
                repair = yield from repairer.repair(reading, config, restore=restore)
            stored[key] = _restoring_once(repair, stored)
        return repairs, stored

    def _write(
        self, stored: Mapping[str, Repair], repairs: Mapping[str, Repair], config: RunnableConfig
    ) -> Command[Any] | None:
        """The state update that writes the repairs; None if only the node's input is repaired."""
        for key, repair in repairs.items():
            if self._histories.owner(key) not in stored:
                report(self._histories.repairer(key), repair.patch, config, only_for="node")
        pairs: list[Any] = []
        for key, repair in stored.items():
            written = write_repair(self._histories.repairer(key), repair, config, alone=False)
            pairs += [] if written is None else written.update or ()
        return Command(update=pairs) if pairs else None

    def _without_own(
        self,
        update: Command[Any] | None,
        stored: Mapping[str, Repair],
        output: Any,
        config: RunnableConfig,
    ) -> Command[Any] | None:
        """The update without restored keys that the node writes itself.

        A subgraph returns the restored values that it has read.
        """
        restored = _restored(stored)
        if update is None or not restored:
            return update
        channels, written = channels_of(config), written_keys(output)
        dropped = {
            key
            for key, _ in restored
            if key in written
            and (isinstance(self._inner, Pregel) or is_written_once(channels.get(key)))
        }
        return replace(update, update=[p for p in update.update or () if p[0] not in dropped])

    def _after_repair(self, repair: Command[Any] | None, output: Any) -> Any:
        """The repair and the node's output, as one flat list that LangGraph accepts."""
        if repair is None:
            return output
        if output is None:
            return repair
        if isinstance(output, list | tuple) and not self._is_whole_state(output):
            return [repair, *output]
        return [repair, output]

    def _is_whole_state(self, output: Any) -> bool:
        return any(is_root_output(output, key) for key in self._histories.keys)

    def _with_repair(
        self,
        command: Command[Any],
        repair: Command[Any] | None,
        stored: Mapping[str, Repair],
        config: RunnableConfig,
    ) -> Command[Any]:
        """The command that a nested graph raised, with the repair, as `_after_repair` adds it."""
        update = _update_pairs(command.update)
        if repair is None or update is None or not is_for_node(command.graph, config):
            return command
        self._show(repair, stored, Command(update=update), config)
        return replace(command, update=[*(_update_pairs(repair.update) or ()), *update])

    def _show(
        self,
        update: Command[Any] | None,
        stored: Mapping[str, Repair],
        output: Any,
        config: RunnableConfig,
    ) -> None:
        """Show clients what is new: what a written repair added, and the node's own output."""
        if update is None:
            return
        written = {key for key, _ in update.update or ()}
        new = {key: new_messages(r.patch) for key, r in stored.items() if key in written}
        restored = tuple(pair for pair in _restored(stored) if pair[0] in written)
        show_repair(config, new, node=[self], restored=restored, output=output)

    def _without_repairs(
        self, output: Any, patches: Mapping[str, Patch], written: AbstractSet[str]
    ) -> Any:
        """The output of the node as if it had read the histories before their repair.

        Histories under the keys `written` stay repaired, because the state gets their repair.
        """
        for key in self._histories.keys:
            if key not in written:
                read = [p for k, p in patches.items() if self._histories.owner(k) == key]
                output = restore_output(output, key, read)
        return output


def _restored(stored: Mapping[str, Repair]) -> StateWrites:
    return tuple(pair for repair in stored.values() for pair in repair.restored)


def _restoring_once(repair: Repair, before: Mapping[str, Repair]) -> Repair:
    """The repair without writes that another history's repair restores already."""
    taken = {key for key, _ in _restored(before)}
    return replace(repair, restored=tuple(p for p in repair.restored if p[0] not in taken))


def _restored_input(
    state: Any, stored: Mapping[str, Repair], config: RunnableConfig
) -> dict[str, Any]:
    """The restored values for the input of the node.

    LangGraph leaves a key without a value out of a dict. What a `Send` carries is left as it is.
    """
    restored = _restored(stored)
    if not restored or task_kind(config) != "node":
        return {}
    values = restored_values(channels_of(config), restored)
    reads_all = isinstance(state, dict)
    return {key: value for key, value in values.items() if reads_all or hasattr(state, key)}


def _update_pairs(update: Any) -> list[Any] | None:
    """The update of a `Command` as pairs of key and value; None if it has another form."""
    if update is None:
        return []
    if isinstance(update, dict):
        return list(update.items())
    return list(update) if isinstance(update, list | tuple) else None
