"""Keep a node from running tool calls that the model did not finish writing.

A stream can end inside the arguments of a tool call: the token limit is reached, or the connection
breaks. LangChain then completes the arguments, and LangGraph runs the call. Here a callback handler
collects the chunks of every model run of a node, and corrects the message before the node sees it:
a truncated call is listed in `invalid_tool_calls`, with its raw text. Complete calls are not
touched. `guarded_node` runs a node so.

A model run that is not streamed costs nothing. What a serialising LLM cache stores, it stores
before the message is corrected.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.utils import message_chunk_to_message
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, GenerationChunk, LLMResult
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Overwrite

from langgraph_patch._langgraph import child_config
from langgraph_patch._sansio import IOGenerator, IORequest
from langgraph_patch.graph.state_values import is_state, replace_values
from langgraph_patch.history.truncated_calls import (
    StreamedCall,
    StreamedCalls,
    refuse_truncated,
)


class TruncationGuard(BaseCallbackHandler):
    """Collects the chunks of model runs and corrects their messages when they end.

    The message of `on_llm_end` is the object that `invoke` returns, so it is corrected in place.
    It must not define `tap_output_*` methods: they would make LangChain stream.
    """

    run_inline = True
    ignore_chain = True
    ignore_agent = True
    ignore_retriever = True
    ignore_retry = True
    ignore_custom_event = True

    def __init__(self) -> None:
        self._runs: dict[UUID, StreamedCalls] = {}
        self._event_runs: set[UUID] = set()
        self._truncated: list[tuple[set[str], list[StreamedCall]]] = []
        self._finished = False

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        """Do nothing. Without this method LangChain would format the whole history as text."""

    def on_llm_new_token(
        self,
        token: str | list[str | dict[str, Any]],  # noqa: ARG002 - LangChain's signature
        *,
        chunk: GenerationChunk | ChatGenerationChunk | None = None,
        run_id: UUID,
        **_: Any,
    ) -> None:
        """Store a chunk."""
        message = getattr(chunk, "message", None)
        if isinstance(message, AIMessageChunk) and not self._finished:
            run = self._runs.get(run_id)
            if run is None:
                run = self._runs[run_id] = StreamedCalls()
            run.add(message)

    def on_stream_event(self, event: Any, *, run_id: UUID, **_: Any) -> None:  # noqa: ARG002 - LangChain's signature
        """Note that LangChain reads the run as v3 events.

        It judges their calls strictly itself, and does not report all chunks.
        """
        self._event_runs.add(run_id)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """Correct the message of a run that was streamed."""
        calls = self._ended(run_id, failed=False)
        generations = response.generations[0] if response.generations else []
        if calls and generations and isinstance(generations[0], ChatGeneration):
            message = generations[0].message
            if isinstance(message, AIMessage):
                refuse_truncated(message, calls)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:  # noqa: ARG002 - LangChain's signature
        """Judge what arrived before the error: the node may keep it."""
        self._ended(run_id, failed=True)

    def _ended(self, run_id: UUID, *, failed: bool) -> list[StreamedCall]:
        """The calls of a run, if one of them is truncated; else an empty list."""
        run = self._runs.pop(run_id, None)
        if run is None or run_id in self._event_runs:
            return []
        calls = run.calls(failed=failed)
        if all(call.args is not None for call in calls):
            return []
        self._truncated.append((run.message_ids, calls))
        return calls

    @property
    def has_truncated(self) -> bool:
        """Whether a model run ended with a truncated call."""
        return bool(self._truncated)

    def finish(self) -> None:
        """Judge the runs that the node stopped reading. What its other runs do is ignored."""
        self._finished = True
        for run_id in list(self._runs):
            self._ended(run_id, failed=False)

    # --- the output of the node ------------------------------------------------------------

    def corrected(self, output: Any) -> Any:
        """The output of the node, with the messages corrected that it merged itself."""
        return self._corrected(output) if self._truncated else output

    def _corrected(self, value: Any) -> Any:
        if isinstance(value, AIMessage):
            return self._corrected_message(value)
        if isinstance(value, Command):
            return replace(value, update=self._corrected(value.update))
        if isinstance(value, Overwrite):
            return Overwrite(self._corrected(value.value))
        if isinstance(value, dict):
            return {key: self._corrected(part) for key, part in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._corrected(part) for part in value)
        return self._corrected_state(value) if is_state(value) else value

    def _corrected_state(self, state: Any) -> Any:
        values = {k: v for k, v in vars(state).items() if isinstance(v, AIMessage | list)}
        return replace_values(state, {key: self._corrected(value) for key, value in values.items()})

    def _corrected_message(self, message: AIMessage) -> AIMessage:
        for ids, calls in self._truncated:
            if message.id is None or message.id in ids:
                copied = cast("AIMessage", message_chunk_to_message(message))
                copied = copied.model_copy() if copied is message else copied
                if refuse_truncated(copied, calls):
                    return copied
        return message

    def left_without_calls(self, message: object) -> bool:
        """Whether `message` has truncated calls, and no call that can run."""
        return (
            isinstance(message, AIMessage)
            and not message.tool_calls
            and bool(message.invalid_tool_calls)
            and self.has_truncated
            and any(message.id is None or message.id in ids for ids, _ in self._truncated)
        )


class guarded(AbstractContextManager[RunnableConfig]):  # noqa: N801 - used as a function
    """Let every model run below a config report to a guard, while the block runs.

    Each task of LangGraph has a callback manager of its own, so the guard is put into it, and taken
    out at the end: a copy would cost more than all the rest. The guard comes first, so that
    other handlers see the corrected message. A guard of a graph further out is left out: one guard
    is enough. Runnables that are called without a config find the guarded one as that of their
    parent: `create_agent` calls its model so.
    """

    __slots__ = ("_child", "_config", "_guard", "_kept")

    def __init__(self, config: RunnableConfig, guard: TruncationGuard) -> None:
        self._config = config
        self._guard = guard
        self._kept: list[tuple[list[BaseCallbackHandler], list[BaseCallbackHandler]]] = []

    def __enter__(self) -> RunnableConfig:
        callbacks = self._config.get("callbacks")
        config = self._config
        if isinstance(callbacks, BaseCallbackManager):
            lists = (callbacks.handlers, callbacks.inheritable_handlers)
            self._kept = [(handlers, handlers[:]) for handlers in lists]
            for handlers in lists:
                handlers[:] = [self._guard, *_others(handlers)] if handlers else [self._guard]
        else:
            config = {**config, "callbacks": [self._guard, *_others(callbacks or [])]}
        self._child = child_config(config)
        self._child.__enter__()
        return config

    def __exit__(self, *error: object) -> None:
        self._child.__exit__(None, None, None)
        for handlers, before in self._kept:
            handlers[:] = before


def _others(handlers: Sequence[BaseCallbackHandler]) -> list[BaseCallbackHandler]:
    return [handler for handler in handlers if not isinstance(handler, TruncationGuard)]


def guarded_call(
    config: RunnableConfig,
    sync: Callable[[RunnableConfig], Any],
    asynchronous: Callable[[RunnableConfig], Awaitable[Any]],
) -> IOGenerator[tuple[Any, TruncationGuard]]:
    """Call a node, or the model of a middleware, with a guard.

    Returns:
        What the call returned, and the guard; the caller corrects the output with it.
    """
    guard = TruncationGuard()

    def call() -> Any:
        with guarded(config, guard) as own:
            return sync(own)

    async def acall() -> Any:
        with guarded(config, guard) as own:
            return await asynchronous(own)

    output = yield IORequest(call, acall)
    guard.finish()
    return output, guard
