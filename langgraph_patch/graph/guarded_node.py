"""Run a node so that no truncated tool call of its model is left in its output.

If all calls of its message are truncated, the node runs once more: its history ends with that
message and a placeholder for each call, as if its tools had answered. The routers of the graph
never see a turn that ends with an incomplete message, unless the second run ends so too.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.pregel import Pregel

from langgraph_patch._langgraph import child_config
from langgraph_patch._sansio import IOGenerator, run_async
from langgraph_patch.graph.state_values import (
    get_messages,
    get_value,
    replace_values,
    with_messages_before,
    written_messages,
)
from langgraph_patch.graph.truncation import TruncationGuard, guarded_call, guarded_config

logger: logging.Logger = logging.getLogger("langgraph_patch")

RepairHistory: TypeAlias = Callable[[Sequence[BaseMessage]], list[BaseMessage]]


@dataclass(frozen=True, slots=True)
class GuardedNode:
    """A node without truncated tool calls in its output.

    Attributes:
        inner: The runnable of the node.
        keys: The state keys of its histories. It writes to the first one.
        repair: Repairs a history, so that its truncated calls are answered by placeholders.
    """

    inner: Runnable[Any, Any]
    keys: Sequence[str]
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
        return (yield from self._asked_again(state, config, kwargs, output, guard))

    async def astream(
        self, state: Any, config: RunnableConfig, kwargs: Mapping[str, Any]
    ) -> AsyncIterator[Any]:
        """Stream the node.

        Its parts come at once until a call is truncated. From then on the newest part waits for
        the next one, since the last part may be replaced by a second run.
        """
        guard = TruncationGuard()
        guarded = guarded_config(config, guard)
        waiting: list[Any] = []
        parts = aiter(self.inner.astream(state, guarded, **kwargs))
        while True:
            try:
                with child_config(guarded):
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
            output = guard.corrected(part)
            yield await run_async(self._asked_again(state, config, kwargs, output, guard))

    def _called(
        self, state: Any, config: RunnableConfig, kwargs: Mapping[str, Any]
    ) -> IOGenerator[tuple[Any, TruncationGuard]]:
        output, guard = yield from guarded_call(
            config,
            lambda guarded: self.inner.invoke(state, guarded, **kwargs),
            lambda guarded: self.inner.ainvoke(state, guarded, **kwargs),
        )
        return guard.corrected(output), guard

    def _asked_again(
        self,
        state: Any,
        config: RunnableConfig,
        kwargs: Mapping[str, Any],
        output: Any,
        guard: TruncationGuard,
    ) -> IOGenerator[Any]:
        """The output, or that of a second run if the message of the first has only truncated calls.

        A compiled graph is not run again: its own nodes ask.
        """
        if not guard.has_truncated or isinstance(self.inner, Pregel):
            return output
        key = self.keys[0]
        message = self._only_message(state, output)
        if message is None or not guard.left_without_calls(message):
            return output
        histories = self._repaired(state, message)
        thread_id = config.get("configurable", {}).get("thread_id")
        logger.info("asked the model of thread %r again: its tool call was cut off", thread_id)
        again = cast("RunnableConfig", {k: v for k, v in config.items() if k != "run_id"})
        output, _ = yield from self._called(replace_values(state, histories), again, kwargs)
        return with_messages_before(output, key, last_turn(histories[key]))

    def _only_message(self, state: Any, output: Any) -> BaseMessage | None:
        """The message that the node adds to its history; None if it adds several, or has none."""
        if get_value(state, self.keys[0]) is None:
            return None
        ids = {message.id for message in get_messages(state, self.keys[0])} - {None}
        written = written_messages(output, self.keys[0])
        new = [
            message
            for message in written
            if isinstance(message, BaseMessage)
            and not isinstance(message, RemoveMessage)
            and message.id not in ids
        ]
        return new[0] if len(new) == 1 else None

    def _repaired(self, state: Any, message: BaseMessage) -> dict[str, list[BaseMessage]]:
        """Each history of the state, with `message` and its placeholders at its end."""
        return {
            key: self.repair([*get_messages(state, key), message])
            for key in self.keys
            if get_value(state, key) is not None
        }


def last_turn(history: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The last message of a model, and what follows it."""
    place = max(i for i, message in enumerate(history) if isinstance(message, AIMessage))
    return list(history[place:])
