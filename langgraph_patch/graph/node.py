"""The node wrapper: it repairs the history that a node reads, then runs the node.

It covers what the entry check does not see: `invoke(None)`, `Command(goto=...)`, `Send`, an edited
state. A node that asks a model and runs alone in its superstep writes the repair too, with its own
output. In every other case only the input is repaired, and START writes the repair with the next
message.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, RunnableSequence
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import (
    GeneratorRunnable,
    IOGenerator,
    IORequest,
    closed_after,
    method_request,
    next_part,
    opened_stream,
    run_async,
)
from langgraph_patch.asking.ask import answered, ask
from langgraph_patch.asking.attempts import Attempts
from langgraph_patch.asking.guard import TruncationGuard
from langgraph_patch.asking.request import Histories, Request
from langgraph_patch.errors import logger
from langgraph_patch.graph.mentions import may_ask
from langgraph_patch.history.changes import Patch
from langgraph_patch.history.comparing import are_identical
from langgraph_patch.repairing.repairer import Repair, Repairer, write_repairs
from langgraph_patch.repairing.writing import NodeOutput, stream_results
from langgraph_patch.state import get_value, messages_in, replace_values

MODEL_INPUT = "llm_input_messages"
"""The state key in which a `pre_model_hook` returns a history for the model only."""


class _Steps(GeneratorRunnable[Any, Any]):
    """The steps of a node that is a sequence.

    LangGraph runs them as steps of the node, without a run of the sequence itself.

    Args:
        sequence: The sequence.
    """

    def __init__(self, sequence: RunnableSequence[Any, Any]) -> None:
        self._steps = sequence.steps

    def run(self, input: Any, config: RunnableConfig, **_: Any) -> IOGenerator[Any]:
        """Run each step on the output of the one before."""
        for number, step in enumerate(self._steps, 1):
            input = yield method_request(step, "invoke", input, _config_of_step(config, number))
        return input

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **_: Any
    ) -> AsyncIterator[Any]:
        """Stream what the last step makes of the streams of the others."""
        config = config or {}
        first, *others = self._steps
        parts = first.astream(input, config)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(closed_after(parts))
            for number, step in enumerate(others, 2):
                parts = step.atransform(parts, _config_of_step(config, number))
                await stack.enter_async_context(closed_after(parts))
            async for part in parts:
                yield part


def _config_of_step(config: RunnableConfig, number: int) -> RunnableConfig:
    """The config of a step of a sequence, which its callbacks name in a tag."""
    manager = config.get("callbacks")
    if number == 1 or not isinstance(manager, BaseCallbackManager):
        return config
    manager = manager.copy()
    manager.remove_tags(["seq:step:1"])
    manager.add_tags([f"seq:step:{number}"], inherit=False)
    return {**config, "callbacks": manager}


class PatchedNode(GeneratorRunnable[Any, Any], RunnableLambda[Any, Any]):
    """Wraps the runnable of a node.

    It is a `RunnableLambda`, because LangGraph looks for subgraphs in its `deps`. It overrides
    every method that runs something, so that it adds no run to traces, events and streams.

    The output of the node has no truncated tool call. If its message has no call that can run,
    and no answer, the node runs once more: its history ends with that message and a placeholder for
    each call, as if its tools had answered. A message without any call is dropped. It does so only
    if one model ran below the node and nothing else was begun, and `NodeOutput` can read the
    output. In any other case, and after a second such message, the turn ends without running a
    call. A WARNING reports it, unless the output is none of these.

    If a provider refuses the history, the node runs again with a repaired one, where the table in
    `ask` allows it, and what can be stored of it is written with the output.

    Args:
        inner: The runnable of the node.
        repairers: For each history that the node reads its repairer.
        shown: The keys of the output schema of the graph.
        unpatched: The state keys of the graph of which none is a patched history. One of which a
            WARNING was given is removed. Default: none.
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
        shown: Collection[str],
        *,
        unpatched: set[str] | None = None,
        has_cache: bool = False,
    ) -> None:
        super().__init__(inner.invoke, inner.ainvoke, name=inner.get_name())
        self.inner, self.keys, self._shown = inner, [*repairers], shown
        self.runs = _Steps(inner) if isinstance(inner, RunnableSequence) else inner
        self._has_cache, self.unpatched = has_cache, unpatched or set()
        self.repairers = dict(repairers)
        if repairers:
            self.repairers[MODEL_INPUT] = next(iter(repairers.values()))
        # LangGraph computes the key of a cached result from these attributes.
        function = getattr(inner, "func", None) or inner
        for attribute in ("__module__", "__qualname__"):
            if (value := getattr(function, attribute, None)) is not None:
                setattr(self, attribute, value)

    @property
    def deps(self) -> list[Runnable[Any, Any]]:
        """The runnable of the node."""
        return [self.inner]

    def run(self, input: Any, config: RunnableConfig, **_: Any) -> IOGenerator[Any]:
        """Run the node on a valid history. LangGraph passes an input and a config only."""
        request, patches = yield from self._repaired(_NodeRequest.of(Run(config), self, input))
        return (yield from self._asked(Attempts(request), patches))

    def _asked(
        self,
        attempts: Attempts,
        patches: Mapping[str, Patch],
        first: tuple[Any, TruncationGuard | None] | None = None,
    ) -> IOGenerator[Any]:
        """The output of the node, with these repairs and those after a refusal."""
        if self._is_graph:  # its own nodes are guarded
            output = yield attempts.request.send()
        else:
            output = yield from ask(attempts, first)
            if attempts.request is not attempts.first:
                sent = attempts.request.histories()
                output = NodeOutput(output).with_stored(sent, attempts.stored)
        refused = attempts.patches
        if not patches and not refused:
            return output
        later = {key: Patch.joined(patches[key], refused[key]) for key in refused if key in patches}
        patches = {**refused, **patches, **later}
        return (yield from self._with_repairs(NodeOutput(output), patches, attempts))

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, **_: Any
    ) -> AsyncIterator[Any]:
        """Stream as the node does, because LangGraph streams the nodes for `astream_events`.

        A repair and the output are one part, so a node that repairs does not stream. The parts
        come at once until a message is truncated or unusable. From then on the newest part waits
        for the next one, since a second run may replace the last part.
        """
        config = config or {}
        request = _NodeRequest.of(Run(config), self, input, is_streamed=True)
        request, patches = await run_async(self._repaired(request))
        if patches:
            yield await run_async(self._asked(Attempts(request), patches))
            return
        stream = self.inner.astream(input, config) if self._is_graph else self._guarded(request)
        async with closed_after(stream) as parts:
            async for part in parts:
                yield part

    async def _guarded(self, streamed: _NodeRequest) -> AsyncIterator[Any]:
        attempts = Attempts(streamed)
        output, guard = await run_async(answered(attempts))
        if attempts.request is not streamed or guard is None:
            yield await run_async(self._asked(attempts, {}, (output, guard)))
            return
        (newest, parts), waiting = output, list[Any]()
        async with closed_after(parts):
            while newest:
                for part in waiting:
                    yield part
                waiting = newest if guard.unfinished or guard.errors else []
                if not waiting:
                    yield newest[0]
                with guard.acting():  # not across the `yield`: the caller may be in another context
                    newest = await next_part(parts)
        for part in waiting:
            yield await run_async(self._asked(attempts, {}, (part, guard)))

    @property
    def _is_graph(self) -> bool:
        return isinstance(self.inner, CompiledStateGraph)

    @property
    def _ends_calls(self) -> bool:
        """Whether no call is alive before the node: the calls at the end are closed."""
        return any(not each.leaves_open for each in self.repairers.values())

    def _repaired(
        self, request: _NodeRequest
    ) -> IOGenerator[tuple[_NodeRequest, Mapping[str, Patch]]]:
        """The request with valid histories, and the repairs by their state keys.

        A call at the end that has no result yet may be alive, so nothing but a recorded result ends
        it. Before an agent that is a node the calls of another agent may stand, which handed over
        beside them: one of their results is there, and the others are recorded in its tasks.
        """
        run, patches = request.run, dict[str, Patch]()
        has_dropped = run.may_have_unread_results()
        for key, history in request.read.items():
            is_handoff = self._is_graph and isinstance(history[-1], ToolMessage)
            recorded = is_handoff or has_dropped
            damage = self.repairers[key].read(history, run, may_be_recorded=recorded)
            if damage is not None:
                patch = (yield from self.repairers[key].repair(damage, run)).patch
                run.note_search(has_found=bool(patch))
                patches |= {key: patch} if patch else {}
        if patches:
            repaired = {key: patch.messages for key, patch in patches.items()}
            request = request.with_histories({**request.histories(), **repaired})
        return request, patches

    def _with_repairs(
        self, output: NodeOutput, patches: Mapping[str, Patch], attempts: Attempts
    ) -> IOGenerator[Any]:
        """The output, with the repairs that this run of the node writes.

        Only what a model says behind a call proves that nothing runs it any more. So what the node
        read is stored if it adds a message of a model, or if no call is alive before it; START
        repairs the rest with the next message.
        """
        run = attempts.request.run
        # What no model read stays as it is: START repairs it with the next message.
        is_model = self._is_graph or self._ends_calls or bool(attempts.answers)
        can_write = is_model and not self._has_cache
        can_write = can_write and output.updates is not None and run.is_alone
        # A `Send` or a hook may have given the node another history than the stored one.
        repairs = [
            (self.repairers[key], Repair(patch))
            for key, patch in patches.items()
            if can_write and key in self.keys
            if self._ends_calls or output.says_more(key, patch.before)
            if are_identical(patch.before, run.values([key]).get(key))
        ]
        writes = yield from write_repairs(repairs, output.writes, run, shown=self._shown)
        unwritten = {key: patch for key, patch in patches.items() if key not in writes}
        for _, patch in sorted(unwritten.items()):
            logger.debug("repaired the input of the node %r: %s", run.node, patch)
        output = NodeOutput(output.with_writes(writes, self, run))
        sent = {key: patch.messages for key, patch in unwritten.items()}
        before = {key: patch.before for key, patch in unwritten.items()}
        return output.with_stored(sent, before)


_UNPATCHED = (
    "the node %r calls a model with the history %r, which is not patched: if it is damaged, its "
    "provider refuses it in every turn. Name it too: messages_key=[..., %r]"
)


def _marks_of(messages: Iterable[object]) -> set[object]:
    """By what each message is known again: its id, else the object."""
    return {m.id or id(m) for m in messages if isinstance(m, BaseMessage)}


@dataclass(slots=True)
class _NodeRequest(Request):
    """The request of a node: it runs with its input.

    Attributes:
        node: The node.
        state: Its input.
        read: The histories in the input, before the node runs: it may change its lists in place.
        is_streamed: Whether the output is the first part of a stream, and the others.
    """

    node: PatchedNode
    state: Any
    read: Histories
    is_streamed: bool = False

    @classmethod
    def of(
        cls, run: Run, node: PatchedNode, state: Any, *, is_streamed: bool = False
    ) -> _NodeRequest:
        """The request of a node with this input."""
        found = {key: messages_in(state, key) for key in node.repairers}
        read = {key: [*history] for key, history in found.items() if history}
        return cls(run, node.repairers, node, state, read, is_streamed)

    @property
    def may_ask(self) -> bool:
        """Whether the code of the node mentions `interrupt`."""
        return may_ask(self.node.inner)

    def histories(self) -> Histories:
        """The histories in the input that are not empty."""
        return self.read

    def guard(self) -> TruncationGuard:
        """A guard for the models below the node."""
        sees = self._warn_of_unpatched if self.node.unpatched else None
        return TruncationGuard(self.run, drops=not self.node.keys, sees=sees)

    def _warn_of_unpatched(self, asked: Any) -> None:
        """Give a WARNING if a model is asked with a history that nobody patches."""
        values = {key: get_value(self.state, key) for key in sorted(self.node.unpatched)}
        values = {key: v for key, v in values.items() if isinstance(v, list) and _marks_of(v[-1:])}
        if not values:
            return
        patched = set[object]().union(*map(_marks_of, self.histories().values()))
        sent = _marks_of(chain.from_iterable(chain.from_iterable(asked))) - patched
        for key, value in values.items():
            if not sent.isdisjoint(_marks_of(value)):
                self.node.unpatched.discard(key)
                logger.warning(_UNPATCHED, self.run.node, key, key)

    def with_histories(self, histories: Histories) -> _NodeRequest:
        """The node with other histories in its input. What it returns then is one part."""
        state = replace_values(self.state, {key: [*each] for key, each in histories.items()})
        return replace(self, state=state, read=histories, is_streamed=False)

    def send(self) -> IORequest:
        """Run the node."""
        if self.is_streamed:
            return opened_stream(self.node.runs, self.state, self.run.config)
        return method_request(self.node.runs, "invoke", self.state, self.run.config)

    def drop_writes(self) -> None:
        """Drop what the node has written: it runs again."""
        self.run.drop_writes()

    def corrected(self, output: Any, guard: TruncationGuard) -> Any:
        """The output, without truncated calls."""
        return guard.corrected(output, self.node.keys)

    def message(self, output: Any) -> BaseMessage | None:
        """The one message that the node adds to its histories."""
        return NodeOutput(output).new_message(
            {key: self.read.get(key, []) for key in self.node.keys}
        )

    def closed(self, output: Any, message: AIMessage) -> Histories:
        """The histories that the node writes, and the one for the model only."""
        read = NodeOutput(output)
        keys = [*(key for key in self.node.keys if read.messages(key)), MODEL_INPUT]
        return {
            key: self.repairers[key].closed([*self.read.get(key, []), message]).messages
            for key in keys
            if messages_in(self.state, key) is not None
        }

    def says_more(self, output: Any, keys: Collection[str], answers: Collection[str]) -> bool:
        """Whether a model was asked, and the node says something behind each of these histories."""
        added, pushed = NodeOutput(output), self.run.written
        written = {MODEL_INPUT: self.node.keys}  # the answer to it is in a history
        return bool(answers) and all(
            any(
                added.says_more(name, self.read.get(name, []), pushed=pushed, answers=answers)
                for name in written.get(key, [key])
            )
            for key in keys
        )

    def with_turns(self, output: Any, turns: Histories) -> Any:
        """The output, with the turns that the node writes to its histories."""
        read = NodeOutput(output)
        written = {key: turn for key, turn in turns.items() if key in self.node.keys}
        if not written or read.updates is None:
            return output
        stream_results(self.run, chain.from_iterable(written.values()))
        return read.with_messages_before(written)
