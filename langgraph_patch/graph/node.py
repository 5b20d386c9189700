"""The node wrapper: it repairs the history that a node reads, then runs the node.

It covers what the entry check does not see: `invoke(None)`, `Command(goto=...)`, `Send`, an edited
state. A model node that runs alone in its superstep writes the repair too, with its own output.
In every other case only the input is repaired, and START writes the repair with the next message.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch._langgraph import node_of, runs_alone, values_of
from langgraph_patch._sansio import (
    GeneratorRunnable,
    IOGenerator,
    IORequest,
    method_request,
    run_async,
)
from langgraph_patch.graph.refusal import Attempts, Histories, ask, joined
from langgraph_patch.graph.repairer import Repair, Repairer, write_repairs
from langgraph_patch.graph.state import (
    are_identical,
    listed,
    messages_before,
    messages_in,
    new_messages,
    replace_values,
    stream_results,
    update_of,
    with_update,
    with_writes,
)
from langgraph_patch.graph.truncation import TruncationGuard
from langgraph_patch.history.changes import Patch
from langgraph_patch.history.pairing import Reading

logger: logging.Logger = logging.getLogger("langgraph_patch")

MODEL_INPUT = "llm_input_messages"
"""The state key in which a `pre_model_hook` returns a history for the model only."""


class PatchedNode(GeneratorRunnable, RunnableLambda[Any, Any]):
    """Wraps the runnable of a node.

    It is a `RunnableLambda`, because LangGraph looks for subgraphs in its `deps`. It overrides
    every method that runs something, so that it adds no run to traces, events and streams.

    The output of the node has no truncated tool call. If its message has no call that can run,
    and no answer, the node runs once more: its history ends with that message and a placeholder for
    each call, as if its tools had answered. A message without any call is dropped. It does so only
    if one model and no tool ran below the node, no interrupt was answered, and the output is one
    that `update_of` reads. In any other case, and after a second such message, the turn ends
    without running a call. A WARNING reports it, unless the output is none of these.

    If a provider refuses the history, the node runs again with a repaired one (`refusal.Attempts`),
    and what can be stored of it is written with the output.

    Args:
        inner: The runnable of the node.
        repairers: For each history that the node reads its repairer.
        written: The state keys of the histories whose repairs the node writes.
        shown: The keys of the output schema of the graph.
        has_cache: Whether its output may be cached: it must not hold the history of one thread.
            Default: False.
    """

    # `invoke` yields one output; the methods of `RunnableLambda` would add a run.
    stream = Runnable.stream
    transform = Runnable.transform
    atransform = Runnable.atransform

    def __init__(
        self,
        inner: Runnable[Any, Any],
        repairers: Mapping[str, Repairer],
        written: Collection[str],
        shown: Collection[str],
        *,
        has_cache: bool = False,
    ) -> None:
        super().__init__(inner.invoke, inner.ainvoke, name=inner.get_name())
        self._inner, self._keys, self._written, self._shown = inner, [*repairers], written, shown
        self._has_cache = has_cache
        self._repairers = dict(repairers)
        if repairers:
            self._repairers[MODEL_INPUT] = next(iter(repairers.values()))
        # LangGraph computes the key of a cached result from these attributes.
        function = getattr(inner, "func", None) or inner
        for attribute in ("__module__", "__qualname__"):
            if (value := getattr(function, attribute, None)) is not None:
                setattr(self, attribute, value)

    @property
    def deps(self) -> list[Runnable[Any, Any]]:
        """The runnable of the node."""
        return [self._inner]

    def run(self, input: Any, config: RunnableConfig, **_: Any) -> IOGenerator[Any]:
        """Run the node on a valid history. LangGraph passes an input and a config only."""
        patches: dict[str, Patch] = {}
        for key, damage in self._damages(input).items():
            patches[key] = (yield from self._repairers[key].repair(damage, config)).patch
        if patches:
            input = replace_values(input, {key: patch.messages for key, patch in patches.items()})
        attempts = self._attempts(input, config)
        return (yield from self._repaired_answer(input, config, attempts, patches))

    def _repaired_answer(
        self,
        state: Any,
        config: RunnableConfig,
        attempts: Attempts,
        patches: Mapping[str, Patch],
    ) -> IOGenerator[Any]:
        """The output of the node, with these repairs and those after a refusal."""
        output = yield from self._answer(state, config, attempts)
        # A node whose model was refused calls a model: it writes, whether START does or not.
        refused = attempts.patches.keys() - patches.keys()
        written = () if self._has_cache else {*self._written, *refused}
        later = {k: joined(patches[k], p) for k, p in attempts.patches.items() if k in patches}
        patches = {**attempts.patches, **patches, **later}
        if not patches:
            return output
        return (yield from self._with_repairs(output, patches, written, config))

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **_: Any
    ) -> AsyncIterator[Any]:
        """Stream as the node does, because LangGraph streams the nodes for `astream_events`.

        A repair and the node's output are one output, so a node that repairs does not stream. The
        parts come at once until a message is truncated or unusable. From then on the newest part
        waits for the next one, since the last part may be replaced by a second run.
        """
        config = config or {}
        if self._damages(input):
            yield await self.ainvoke(input, config)
            return
        inner = self._inner
        is_graph = isinstance(inner, CompiledStateGraph)  # its own nodes are guarded
        stream = inner.astream if is_graph else self._astream_guarded
        async for part in stream(input, config):
            yield part

    async def _astream_guarded(self, input: Any, config: RunnableConfig) -> AsyncIterator[Any]:
        guard = TruncationGuard(config, drops=not self._keys)
        waiting: list[Any] = []
        attempts = self._attempts(input, config)
        is_first = True
        parts = aiter(self._inner.astream(input, config))
        while True:
            try:
                with guard:  # not across the `yield`: the caller may be in another context
                    part = await anext(parts)
            except StopAsyncIteration:
                break
            except Exception as error:
                if not is_first or attempts.refused(error, guard) is not None:
                    raise
                break
            is_first = False
            for ready in waiting:
                yield ready
            waiting = [part] if guard.has_damaged else []
            if not waiting:
                yield part
        if attempts.histories:  # refused, and asked again with these
            yield await run_async(self._repaired_answer(input, config, attempts, {}))
            return
        guard.finish()
        for part in waiting:
            output = guard.corrected(part, self._keys)
            yield await run_async(self._ask_again(input, config, output, guard))

    # --- the history that the node reads -------------------------------------------------------

    def _damages(self, state: Any) -> dict[str, Reading]:
        """The damaged histories in the input of the node, by their state keys."""
        found = {}
        for key, repairer in self._repairers.items():
            history = messages_in(state, key)
            if history and (damage := repairer.read(history)) is not None:
                found[key] = damage
        return found

    def _with_repairs(
        self,
        output: Any,
        patches: Mapping[str, Patch],
        written: Collection[str],
        config: RunnableConfig,
    ) -> IOGenerator[Any]:
        """The output, with the repairs of these keys, if this run of the node can write them."""
        update = update_of(output)
        # A `Send` or a hook may have given the node another history than the stored one.
        repairs = [
            (self._repairers[key], Repair(patch))
            for key, patch in patches.items()
            if key in written
            and are_identical(patch.before, values_of(config, [key], fresh=False).get(key))
        ]
        if update is None or not runs_alone(config):
            repairs = []
        writes, shown = yield from write_repairs(repairs, update or {}, config, shown=self._shown)
        stream_results(config, shown)
        for key in sorted(patches.keys() - writes.keys()):
            logger.debug("repaired the input of the node %r: %s", node_of(config), patches[key])
        if not writes:
            return _without_removals(output, update or {}, patches)
        return with_writes(output, writes)

    # --- calls that the model did not finish writing ----------------------------------------

    def _answer(self, state: Any, config: RunnableConfig, attempts: Attempts) -> IOGenerator[Any]:
        """The output of the node, without truncated calls."""
        if isinstance(self._inner, CompiledStateGraph):  # its own nodes are guarded
            return (yield method_request(self._inner, "invoke", state, config))
        output, guard = yield from self._called(state, config, attempts)
        state = replace_values(state, attempts.histories) if attempts.histories else state
        return (yield from self._ask_again(state, config, output, guard))

    def _called(
        self, state: Any, config: RunnableConfig, attempts: Attempts
    ) -> IOGenerator[tuple[Any, TruncationGuard]]:
        def request(histories: Histories) -> IORequest:
            sent = replace_values(state, histories) if histories else state
            return method_request(self._inner, "invoke", sent, config)

        output, guard = yield from ask(attempts, config, request, drops=not self._keys)
        return guard.corrected(output, self._keys), guard

    def _attempts(self, state: Any, config: RunnableConfig) -> Attempts:
        """The requests that are made of the histories in the input of the node."""
        return Attempts(config, lambda: self._histories(state))

    def _histories(self, state: Any) -> Histories:
        found = {key: messages_in(state, key) for key in self._repairers}
        return {key: history for key, history in found.items() if history}

    def _ask_again(
        self,
        state: Any,
        config: RunnableConfig,
        output: Any,
        guard: TruncationGuard,
    ) -> IOGenerator[Any]:
        """The output, or that of a second run behind the unusable message and its placeholders."""
        message = new_message(output, state, self._keys) if guard.has_damaged else None
        if not guard.asks_again(message):
            return output
        update = update_of(output) or {}
        written = [key for key in self._keys if listed(update.get(key))]
        repaired = {
            key: self._repairers[key].close_calls([*history, message])
            for key in ([*written, MODEL_INPUT] if message.invalid_tool_calls else [])
            if (history := messages_in(state, key)) is not None
        }
        state = replace_values(state, repaired)
        attempts = self._attempts(state, config)
        output, guard = yield from self._called(state, config, attempts)
        guard.asks_again(new_message(output, state, self._keys), asked=True)
        second = update_of(output)
        if second is None or not repaired:
            return output
        turns = {key: last_turn(repaired[key]) for key in written if key in repaired}
        own = {key: messages_before(turn, second.get(key)) for key, turn in turns.items()}
        return with_update(output, own)


def new_message(output: Any, state: Any, keys: Sequence[str]) -> BaseMessage | None:
    """The one message that a node adds to its histories.

    None if it adds several, or if `update_of` does not read its output.
    """
    update = update_of(output) or {}
    known = {m.id for key in keys for m in messages_in(state, key) or []} - {None}
    new = {
        id(message): message
        for key in keys
        for message in listed(update.get(key))
        if not isinstance(message, RemoveMessage) and message.id not in known
    }
    return next(iter(new.values())) if len(new) == 1 else None


def last_turn(history: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The last message of a model, and what follows it."""
    place = max(i for i, message in enumerate(history) if isinstance(message, AIMessage))
    return list(history[place:])


def _without_removals(output: Any, update: Mapping[str, Any], patches: Mapping[str, Patch]) -> Any:
    """The output of a node that read a repair which is not written, such as a summarizer.

    It may remove a placeholder that the state does not have, which LangGraph refuses.
    """
    added = {message.id for patch in patches.values() for message in new_messages(patch)}
    kept = {
        key: [m for m in update[key] if not (isinstance(m, RemoveMessage) and m.id in added)]
        for key in patches
        if isinstance(update.get(key), list)
    }
    return with_update(output, kept) if kept else output
