"""The node wrapper: it repairs the history that a node reads, then runs the node.

It covers what the entry check does not see: `invoke(None)`, `Command(goto=...)`, `Send`, an edited
state. A model node that runs alone in its superstep writes the repair too, with its own output.
In every other case only the input is repaired, and START writes the repair with the next message.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command

from langgraph_patch._langgraph import (
    channels_of,
    has_interrupts,
    node_of,
    runs_alone,
    stored_value,
    task_kind,
)
from langgraph_patch._sansio import IOGenerator, IORequest, run_async, run_sync
from langgraph_patch.graph.repairer import Repairer
from langgraph_patch.graph.state import (
    are_identical,
    messages_in,
    replace_values,
    show_repairs,
    stream_results,
    update_of,
    whole_write,
    with_messages_before,
    with_writes,
    written_messages,
)
from langgraph_patch.graph.truncation import TruncationGuard, guarded_call
from langgraph_patch.history.damaged_fields import id_of
from langgraph_patch.history.pairing import Reading
from langgraph_patch.history.patch import Patch

logger: logging.Logger = logging.getLogger("langgraph_patch")

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

    def _damages(self, state: Any) -> dict[str, Reading]:
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
        own_update, channels = update_of(output), channels_of(config)
        can_write = own_update is not None and task_kind(config) == "node" and runs_alone(config)
        update = own_update or {}
        writes: dict[str, Any] = {}
        written: dict[str, Patch] = {}
        for key in self._written if can_write else ():
            patch = patches.get(key)
            # A `Send` or a hook may have given the node another history than the stored one.
            if not patch or not are_identical(patch.before, stored_value(config, key)):
                continue
            own = [update[key]] if key in update else []
            if (write := whole_write(channels.get(key), patch, *own)) is not None:
                writes[key], written[key] = write, patch
        for key in patches.keys() - written.keys():
            logger.debug("repaired the input of the node %r: %s", node_of(config), patches[key])
        if not written:
            return _without_removals(output, update, patches)
        for key in written:
            self._repairers[key].report(patches[key], config)
        stream_results(config, written.values())
        show_repairs(config, written, update, self._shown)
        return with_writes(output, writes)


def _without_removals(output: Any, update: Mapping[str, Any], patches: Mapping[str, Patch]) -> Any:
    """The output of a node that read a repair which is not written, such as a summarizer.

    It may remove a placeholder that the state does not have, which LangGraph refuses.
    """
    kept = {}
    for key, patch in patches.items():
        added = {message.id for message in patch.messages} - {id_of(m) for m in patch.before}
        if isinstance(own := update.get(key), list):
            kept[key] = [m for m in own if not (isinstance(m, RemoveMessage) and m.id in added)]
    changed = {key: own for key, own in kept.items() if len(own) < len(update[key])}
    return with_writes(output, changed) if changed else output


# --- calls that the model did not finish writing ----------------------------------------

RepairHistory: TypeAlias = Callable[[Sequence[BaseMessage]], list[BaseMessage]]


@dataclass(frozen=True, slots=True)
class GuardedNode:
    """A node without truncated tool calls in its output.

    If its message has no call left that can run, the node runs once more: its history ends with
    that message and a placeholder for each call, as if its tools had answered. It does so only if
    nothing is done twice that a user would notice: one model ran below the node, no tool, no graph
    and no interrupt, and the output is a usual one (see `new_message`). In any other case, and
    after a second such message, the turn ends without running the call.

    Attributes:
        inner: The runnable of the node.
        keys: The state keys of the histories that it may read and write.
        model_input: The state key of a history that it may read, and does not write.
        repair: Repairs a history, so that its truncated calls are answered by placeholders.
    """

    inner: Runnable[Any, Any]
    keys: Sequence[str]
    model_input: str
    repair: RepairHistory

    def run(
        self, state: Any, config: RunnableConfig, kwargs: Mapping[str, Any]
    ) -> IOGenerator[Any]:
        """Run the node.

        Returns:
            Its output. If it ran twice: the second output, and before its messages the truncated
            message with its placeholders.
        """
        if isinstance(self.inner, CompiledStateGraph):  # its own nodes are guarded
            return (yield self._request(state, config, kwargs))
        output, guard = yield from self._called(state, config, kwargs)
        if not guard.has_truncated:
            return output
        return (yield from self._asked_again(state, config, kwargs, output, guard))

    async def astream(
        self, state: Any, config: RunnableConfig, kwargs: Mapping[str, Any]
    ) -> AsyncIterator[Any]:
        """Stream the node.

        Its parts come at once until a call is truncated. From then on the newest part waits for
        the next one, since the last part may be replaced by a second run.
        """
        if isinstance(self.inner, CompiledStateGraph):  # its own nodes are guarded
            async for part in self.inner.astream(state, config, **kwargs):
                yield part
            return
        guard = self._guard(config)
        waiting: list[Any] = []
        parts = aiter(self.inner.astream(state, config, **kwargs))
        while True:
            try:
                with guard:  # not across the `yield`: the caller may be in another context
                    part = await anext(parts)
            except StopAsyncIteration:
                break
            for ready in waiting:
                yield ready
            waiting = [part] if guard.has_truncated else []
            if not waiting:
                yield part
        guard.finish()
        for part in waiting:
            output = guard.corrected(part, self.keys)
            yield await run_async(self._asked_again(state, config, kwargs, output, guard))

    def _guard(self, config: RunnableConfig) -> TruncationGuard:
        return TruncationGuard(config, drops=not self.keys)

    def _called(
        self, state: Any, config: RunnableConfig, kwargs: Mapping[str, Any]
    ) -> IOGenerator[tuple[Any, TruncationGuard]]:
        guard = self._guard(config)
        output = yield from guarded_call(guard, self._request(state, config, kwargs))
        return guard.corrected(output, self.keys), guard

    def _request(self, state: Any, config: RunnableConfig, kwargs: Mapping[str, Any]) -> IORequest:
        return IORequest(
            lambda: self.inner.invoke(state, config, **kwargs),
            lambda: self.inner.ainvoke(state, config, **kwargs),
        )

    def _asked_again(
        self,
        state: Any,
        config: RunnableConfig,
        kwargs: Mapping[str, Any],
        output: Any,
        guard: TruncationGuard,
    ) -> IOGenerator[Any]:
        """The output, or that of a second run."""
        message = new_message(output, state, self.keys)
        if message is None or not guard.left_without_calls(message):
            return output
        if not guard.ran_one_model or has_interrupts(config):
            return output
        written = [key for key in self.keys if written_messages(output, key)]
        histories = {key: messages_in(state, key) for key in [*written, self.model_input]}
        repaired = {k: self.repair([*h, message]) for k, h in histories.items() if h is not None}
        thread_id = config.get("configurable", {}).get("thread_id")
        logger.info("asked the model of thread %r again: its tool call was cut off", thread_id)
        again = cast("RunnableConfig", {k: v for k, v in config.items() if k != "run_id"})
        output, _ = yield from self._called(replace_values(state, repaired), again, kwargs)
        for key in written:
            output = with_messages_before(output, key, last_turn(repaired[key]))
        return output


def new_message(output: Any, state: Any, keys: Sequence[str]) -> BaseMessage | None:
    """The one message that a node adds to its histories.

    None if it adds several, or if its output is none of the usual ones: a dict, a `Command` with a
    dict, or a list of these.
    """
    parts = output if isinstance(output, list) else [output]
    updates = [part.update if isinstance(part, Command) else part for part in parts]
    if not all(isinstance(update, dict | None) for update in updates):
        return None
    known = {m.id for key in keys for m in messages_in(state, key) or []} - {None}
    new = {
        id(message): message
        for key in keys
        for message in written_messages(output, key)
        if not isinstance(message, RemoveMessage) and message.id not in known
    }
    return next(iter(new.values())) if len(new) == 1 else None


def last_turn(history: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The last message of a model, and what follows it."""
    place = max(i for i, message in enumerate(history) if isinstance(message, AIMessage))
    return list(history[place:])
