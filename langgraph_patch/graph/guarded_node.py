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

from langgraph_patch._sansio import IOGenerator, run_async
from langgraph_patch.graph.state_values import (
    messages_or_none,
    replace_values,
    with_messages_before,
    written_messages,
)
from langgraph_patch.graph.truncation import TruncationGuard, guarded, guarded_call

logger: logging.Logger = logging.getLogger("langgraph_patch")

RepairHistory: TypeAlias = Callable[[Sequence[BaseMessage]], list[BaseMessage]]


@dataclass(frozen=True, slots=True)
class GuardedNode:
    """A node without truncated tool calls in its output.

    Attributes:
        inner: The runnable of the node.
        keys: The state keys of the histories that it may read and write. Without any, truncated
            calls are refused, and the node is never run again.
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
        return (yield from self._asked_again(state, config, kwargs, output, guard))

    async def astream(
        self, state: Any, config: RunnableConfig, kwargs: Mapping[str, Any]
    ) -> AsyncIterator[Any]:
        """Stream the node.

        Its parts come at once until a call is truncated. From then on the newest part waits for
        the next one, since the last part may be replaced by a second run.
        """
        guard = TruncationGuard()
        waiting: list[Any] = []
        parts: AsyncIterator[Any] | None = None
        while True:
            try:
                with guarded(config, guard) as own:
                    parts = parts or aiter(self.inner.astream(state, own, **kwargs))
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
            lambda own: self.inner.invoke(state, own, **kwargs),
            lambda own: self.inner.ainvoke(state, own, **kwargs),
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

        A compiled graph is not run again: the node in it that called the model is.
        """
        if not guard.has_truncated or isinstance(self.inner, Pregel):
            return output
        written = self._written(state, output)
        messages = {id(message): message for message in written.values()}
        message = next(iter(messages.values()), None)
        if message is None or len(messages) > 1 or not guard.left_without_calls(message):
            return output
        histories = self._repaired(state, message, [*written, self.model_input])
        thread_id = config.get("configurable", {}).get("thread_id")
        logger.info("asked the model of thread %r again: its tool call was cut off", thread_id)
        again = cast("RunnableConfig", {k: v for k, v in config.items() if k != "run_id"})
        output, _ = yield from self._called(replace_values(state, histories), again, kwargs)
        for key in written:
            output = with_messages_before(output, key, last_turn(histories[key]))
        return output

    def _written(self, state: Any, output: Any) -> dict[str, BaseMessage]:
        """The message that the node adds to each of its histories, where it adds exactly one."""
        found = {}
        for key in self.keys:
            history = messages_or_none(state, key)
            if history is None:
                continue
            ids = {message.id for message in history} - {None}
            new = [
                message
                for message in written_messages(output, key)
                if isinstance(message, BaseMessage)
                and not isinstance(message, RemoveMessage)
                and message.id not in ids
            ]
            if len(new) == 1:
                found[key] = new[0]
        return found

    def _repaired(
        self, state: Any, message: BaseMessage, keys: Sequence[str]
    ) -> dict[str, list[BaseMessage]]:
        """These histories of the state, with `message` and its placeholders at their end."""
        histories = {key: messages_or_none(state, key) for key in keys}
        return {
            key: self.repair([*history, message])
            for key, history in histories.items()
            if history is not None
        }


def last_turn(history: Sequence[BaseMessage]) -> list[BaseMessage]:
    """The last message of a model, and what follows it."""
    place = max(i for i, message in enumerate(history) if isinstance(message, AIMessage))
    return list(history[place:])
