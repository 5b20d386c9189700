"""The node wrapper: it repairs the history that a node reads, then runs the node.

It covers what the entry check does not see: `invoke(None)`, `Command(goto=...)`, `Send`, an edited
state. A model node that runs alone in its superstep writes the repair too, with its own output.
In every other case only the input is repaired, and START writes the repair with the next message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from langgraph_patch._langgraph import channels_of, runs_alone, stored_value, task_kind
from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.graph.guarded_node import GuardedNode
from langgraph_patch.graph.repairer import Damage, Repairer
from langgraph_patch.graph.state import (
    messages_in,
    replace_values,
    show_repairs,
    update_of,
    whole_write,
    with_update,
)
from langgraph_patch.history.patch import Patch

MODEL_INPUT = "llm_input_messages"
"""The state key in which a `pre_model_hook` returns a history for the model only."""


class PatchedNode(RunnableLambda[Any, Any]):
    """Wraps the runnable of a node.

    It is a `RunnableLambda`, because LangGraph looks for subgraphs in its `deps`. It overrides
    every method that runs something, so that it adds no run to traces, events and streams.

    Args:
        inner: The runnable of the node.
        repairers: For each history that the node reads its repairer.
        written: The state keys of the histories whose repairs the node writes.
        shown: The keys of the output schema of the graph.
    """

    def __init__(
        self,
        inner: Runnable[Any, Any],
        repairers: Mapping[str, Repairer],
        written: Collection[str],
        shown: Collection[str],
    ) -> None:
        super().__init__(inner.invoke, inner.ainvoke, name=inner.get_name())
        self._inner, self._written, self._shown = inner, written, shown
        first = next(iter(repairers.values()), None)
        self._repairers = {**repairers, MODEL_INPUT: first} if first is not None else {}
        repair = first.close_calls if first is not None else list
        self._guarded = GuardedNode(inner, tuple(repairers), MODEL_INPUT, repair)
        # LangGraph computes the key of a cached result from these attributes.
        function = getattr(inner, "func", None) or inner
        for attribute in ("__module__", "__qualname__"):
            if (value := getattr(function, attribute, None)) is not None:
                setattr(self, attribute, value)

    @property
    def deps(self) -> list[Runnable[Any, Any]]:
        """The runnable of the node."""
        return [self._inner]

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the node on a valid history."""
        return run_sync(self._run(input, config or {}, kwargs))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Do the same as `invoke`, asynchronously."""
        return await run_async(self._run(input, config or {}, kwargs))

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Stream as the node does, because LangGraph streams the nodes for `astream_events`.

        A repair and the node's output are one output, so a node that repairs does not stream.
        """
        if self._damages(input):
            yield await run_async(self._run(input, config or {}, kwargs))
            return
        async for part in self._guarded.astream(input, config or {}, kwargs):
            yield part

    # The other methods are those of `Runnable`: those of `RunnableLambda` add a run.

    def stream(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """Yield the whole output of `invoke`."""
        yield from Runnable.stream(self, input, config, **kwargs)

    def transform(
        self, input: Iterator[Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """Yield the whole output of `invoke`, for an input that comes in parts."""
        yield from Runnable.transform(self, input, config, **kwargs)

    async def atransform(
        self, input: AsyncIterator[Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Do the same as `transform`, asynchronously."""
        async for part in Runnable.atransform(self, input, config, **kwargs):
            yield part

    # --- a run -----------------------------------------------------------------------------

    def _damages(self, state: Any) -> dict[str, Damage]:
        """The damaged histories in the input of the node, by their state keys."""
        found = {}
        for key, repairer in self._repairers.items():
            history = messages_in(state, key)
            if history and (damage := repairer.read(history)) is not None:
                found[key] = damage
        return found

    def _run(
        self, state: Any, config: RunnableConfig, kwargs: Mapping[str, Any]
    ) -> IOGenerator[Any]:
        damages = self._damages(state)
        if not damages:
            return (yield from self._guarded.run(state, config, kwargs))
        patches: dict[str, Patch] = {}
        for key, damage in damages.items():
            patches[key] = (yield from self._repairers[key].repair(damage, config)).patch
        repaired = replace_values(state, {key: patch.messages for key, patch in patches.items()})
        output = yield from self._guarded.run(repaired, config, kwargs)
        return self._with_repairs(output, patches, config)

    def _with_repairs(self, output: Any, patches: dict[str, Patch], config: RunnableConfig) -> Any:
        """The output, with the repairs that this run of the node writes."""
        update = update_of(output)
        if update is None or task_kind(config) != "node" or not runs_alone(config):
            return output
        channels, writes, written = channels_of(config), {}, {}
        for key in self._written:
            patch = patches[key].for_state() if key in patches else None
            if not patch or not _is_stored(patch.before, stored_value(config, key)):
                continue
            own = [update[key]] if key in update else []
            if (write := whole_write(channels.get(key), patch, *own)) is not None:
                writes[key], written[key] = write, patch
        if not written:
            return output
        for key in written:
            self._repairers[key].report(patches[key], config)
        show_repairs(config, written, update, self._shown)
        return with_update(output, {**update, **writes})


def _is_stored(history: list[BaseMessage], stored: Any) -> bool:
    """Whether the state has this very history: a `Send` or a hook may have given another one."""
    return len(history) == len(stored or ()) and all(
        a is b for a, b in zip(history, stored or (), strict=True)
    )
