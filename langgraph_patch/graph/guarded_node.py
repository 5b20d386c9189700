"""Run a node with a `TruncationGuard`, and run it once more if its call was cut off."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.types import Command

from langgraph_patch._langgraph import has_interrupts
from langgraph_patch._sansio import IOGenerator, run_async
from langgraph_patch.graph.state import (
    messages_in,
    replace_values,
    with_messages_before,
    written_messages,
)
from langgraph_patch.graph.truncation import TruncationGuard, guarded_call

logger: logging.Logger = logging.getLogger("langgraph_patch")

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
        output = yield from guarded_call(
            guard,
            lambda: self.inner.invoke(state, config, **kwargs),
            lambda: self.inner.ainvoke(state, config, **kwargs),
        )
        return guard.corrected(output, self.keys), guard

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
