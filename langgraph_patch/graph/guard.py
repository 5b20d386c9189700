"""Keep a node from running tool calls that the model did not finish writing.

A stream can end inside the arguments of a tool call: the token limit is reached, or the connection
breaks. LangChain then completes the arguments, and LangGraph runs the call. A `TruncationGuard` is
a callback handler that collects the chunks of every model run below a node, and corrects the
message before the node sees it: a truncated call is listed in `invalid_tool_calls`, with its raw
text. Complete calls are not touched.

A message that has no call that can run, and no answer, would end the turn. The guard says whether
the model is asked once more.

The guard is in a context variable that LangChain reads for each callback manager that it configures
(`register_configure_hook`). So it reaches models with callbacks of their own, agents that a node
calls and agents in tools. It does not reach a model in a thread that copies no context. What a
serialising LLM cache stores, it stores before the message is corrected, and other handlers, such as
tracers, receive the message before it is corrected.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import fields, replace
from typing import Any, Self, TypeGuard, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.utils import message_chunk_to_message
from langchain_core.outputs import ChatGenerationChunk, GenerationChunk, LLMResult
from langchain_core.tracers.context import register_configure_hook
from langgraph.types import Command, Overwrite, Send

from langgraph_patch._langgraph.graphs import sent_call
from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import IORequest
from langgraph_patch.errors import UnfinishedError
from langgraph_patch.graph.writing import replace_values, values_in
from langgraph_patch.history.fields import text_of
from langgraph_patch.history.streamed_calls import (
    StreamedCall,
    StreamedCalls,
    drop_truncated,
    is_unusable,
    refuse_truncated,
)

logger: logging.Logger = logging.getLogger("langgraph_patch")

_MOST_IN_A_ROW = 2
"""How many messages in a row may be truncated or unusable in one run of a node.

A good message ends the row. An attempt that failed is not counted: the application repeats it.
"""

_UNUSABLE = "its message has no complete tool call and no answer"

_GUARD: ContextVar[Any] = ContextVar("langgraph_patch_guard", default=None)
"""The guard of the innermost patched node that runs. Only this one acts."""

register_configure_hook(_GUARD, inheritable=True)


def is_guarded() -> bool:
    """Whether the guard of a node that may ask again is in charge of what runs here."""
    guard = _GUARD.get()
    return guard is not None and not guard.drops


class TruncationGuard(BaseCallbackHandler):
    """Collects the chunks of model runs and corrects their messages when they end.

    It is in charge of what runs inside its `with` block. Chunks are only stored, and judged once
    when the model run ends. The message of `on_llm_end` is the object that `invoke` returns, so it
    is corrected in place. It must not define `tap_output_*` methods: they would make LangChain
    stream.

    A node that loops until its model has an answer would never end if the model never finishes. So
    the third message in a row that is truncated or unusable is an `UnfinishedError`.

    In a history that is not patched nothing would answer an invalid call, and the next model would
    refuse it. So in a graph below the node, and in a node without a patched history, a truncated
    call is dropped from the message, and a WARNING reports it.

    Args:
        run: The run of the node.
        drops: Whether the node has no patched history. Default: False.
    """

    run_inline = True
    raise_error = True
    ignore_retriever = True
    ignore_retry = True
    ignore_custom_event = True
    ignore_agent = False
    ignore_chain = False

    def __init__(self, run: Run, *, drops: bool = False) -> None:
        self._run = run
        self.drops = drops
        self.ignore_agent = self.ignore_chain = drops  # the node is not run again: no need to know
        self._runs: dict[UUID, StreamedCalls] = {}
        # The ids of each message that is truncated or unusable, and its calls.
        self._damaged: list[tuple[set[str], list[StreamedCall]]] = []
        self._models: dict[UUID, Any] = {}  # the metadata of each run
        self._in_a_row = 0  # damaged messages since the last good one
        self._before: dict[UUID, int] = {}  # how many there were when the run began
        self._chains: list[Any] = []  # that of each runnable, which may be a graph
        self._ran_tool = False
        self._answered = False  # a model run ended without an error, or after its first chunk
        self.errors: list[BaseException] = []  # those of model runs before their first chunk
        self._is_unusable = False  # whether the newest message of a model of the node is
        self._token: Token[Any] | None = None

    def __enter__(self) -> Self:
        self._token = _GUARD.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        if self._token is not None:
            _GUARD.reset(self._token)

    # --- callbacks -------------------------------------------------------------------------

    def on_tool_start(self, *_: Any, **__: Any) -> None:
        """Note that a tool runs below the node."""
        self._ran_tool = True

    def on_chain_start(self, *_: Any, metadata: Any = None, **__: Any) -> None:
        """Note what runs below the node."""
        self._chains.append(metadata)

    def on_llm_start(self, *_: Any, run_id: UUID, metadata: Any = None, **__: Any) -> None:
        """Collect the chunks of a model run, if this guard is in charge."""
        self._models[run_id] = metadata
        self._before[run_id] = self._in_a_row
        if _GUARD.get() is self:
            self._runs[run_id] = StreamedCalls()

    on_chat_model_start = on_llm_start  # without it LangChain formats the whole history as text

    def on_llm_new_token(
        self,
        token: str | list[str | dict[str, Any]],  # noqa: ARG002 - LangChain's signature
        *,
        chunk: GenerationChunk | ChatGenerationChunk | None = None,
        run_id: UUID,
        **_: Any,
    ) -> None:
        """Store a chunk."""
        message, run = getattr(chunk, "message", None), self._runs.get(run_id)
        if run is not None:
            run.is_streamed = True
            if isinstance(message, AIMessageChunk):
                run.add(message)

    def on_stream_event(self, event: Any, *, run_id: UUID, **_: Any) -> None:  # noqa: ARG002 - LangChain's signature
        """Note that LangChain reads the run as v3 events.

        It judges their calls strictly itself, and does not report all chunks.
        """
        if run_id in self._runs:
            self._runs[run_id].is_judged = True

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """Correct the message of a run, and note whether it is unusable."""
        self._answered = True
        generations = response.generations[0] if response.generations else []
        message = getattr(generations[0], "message", None) if generations else None
        if not isinstance(message, AIMessage):
            self._ended(run_id)
            return
        is_nested, damaged = self._is_nested(self._models.get(run_id)), len(self._damaged)
        if calls := self._ended(run_id, message):
            self._correct(message, calls, nested=is_nested)
        is_damaged = len(self._damaged) > damaged
        if is_nested:
            return
        self._is_unusable = is_damaged and is_unusable(message)
        # A message that was asked for before another one was damaged does not follow it.
        in_a_row = min(self._before.pop(run_id, 0), self._in_a_row)
        self._in_a_row = self._in_a_row + 1 if is_damaged else 0
        if is_damaged and not self.drops and in_a_row >= _MOST_IN_A_ROW:
            raise UnfinishedError(
                f"The model of the node {self._run.node!r} did not finish its message "
                f"{_MOST_IN_A_ROW + 1} times in one run of the node: it ended inside a tool call, "
                f"or with no call and no answer. Raise its token limit, or let the node stop when "
                f"`invalid_tool_calls` is not empty."
            )

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Judge what arrived before the error: the node may keep it."""
        if (run := self._runs.get(run_id)) is not None and run.is_streamed:
            self._answered = True
        self.errors.append(error)
        self._ended(run_id, failed=True)

    def _correct(
        self, message: AIMessage, calls: Sequence[StreamedCall], *, nested: bool = False
    ) -> bool:
        """Whether `message` has a truncated call; it is corrected in place."""
        if not (nested or self.drops):
            return refuse_truncated(message, calls)
        dropped = drop_truncated(message, calls)
        if dropped:
            self._is_unusable = False  # what follows is all that is said of it
            logger.warning(
                "dropped a tool call that the model did not finish writing, below the node %r: its "
                "history is not patched, so the model is not asked again",
                self._run.node,
            )
        return dropped

    def _ended(
        self, run_id: UUID, message: AIMessage | None = None, *, failed: bool = False
    ) -> list[StreamedCall]:
        """The calls of a run, if this guard is in charge and one of them is truncated."""
        if (run := self._runs.pop(run_id, None)) is None:
            return []
        calls = run.calls(message, failed=failed)
        is_truncated = any(call.args is None for call in calls)
        if is_truncated or (message is not None and is_unusable(message)):
            ids = set() if message is None else {text_of(message.id)}
            self._damaged.append((run.message_ids | ids, calls))
        return calls if is_truncated else []

    # --- the output of the node ------------------------------------------------------------

    @property
    def has_damaged(self) -> bool:
        """Whether a model run ended with a truncated call, or with an unusable message."""
        return bool(self._damaged)

    @property
    def ran_one_model(self) -> bool:
        """Whether one model ran below the node, and no tool and no graph."""
        return len(self._models) == 1 and not self._ran_more

    @property
    def only_failed(self) -> bool:
        """Whether models ran below the node and failed before a chunk, and no tool and no graph."""
        return bool(self.errors) and not self._answered and not self._ran_more

    @property
    def _ran_more(self) -> bool:
        """Whether a tool or a graph ran below the node."""
        nested = map(self._is_nested, [*self._models.values(), *self._chains])
        return self._ran_tool or any(nested)

    def _is_nested(self, metadata: Mapping[str, Any] | None) -> bool:
        """Whether what started with this metadata belongs to a graph below the node."""
        namespace = (metadata or {}).get("langgraph_checkpoint_ns")
        if namespace is None:
            return False
        config: Any = {"configurable": {"checkpoint_ns": namespace}, "metadata": metadata}
        return Run(config).namespace != self._run.namespace

    def finish(self) -> None:
        """Judge the runs that the node stopped reading. What its other runs do is ignored."""
        for run_id in list(self._runs):
            self._ended(run_id)

    def corrected(self, output: Any, keys: Collection[str]) -> Any:
        """The output of the node, with the messages corrected that it merged itself.

        `Send`s and plain dicts that carry a truncated call are left out.

        Args:
            output: The output.
            keys: The state keys of the patched histories. In messages under other keys truncated
                calls are dropped.
        """
        return self._corrected(output, keys, drops=not keys) if self._damaged else output

    def _corrected(self, value: Any, keys: Collection[str], *, drops: bool) -> Any:
        if isinstance(value, AIMessage):
            return self._corrected_message(value, drops=drops)
        if isinstance(value, Send):
            return [] if self._carries_truncated(value) else value
        if type(value) in (list, tuple):
            kept = (part for part in value if not self._carries_truncated(part))
            return type(value)(self._corrected(part, keys, drops=drops) for part in kept)
        if isinstance(value, Command | Overwrite):
            names = [field.name for field in fields(value)]
            parts = {n: self._corrected(getattr(value, n), keys, drops=drops) for n in names}
            return replace(value, **parts)
        values = values_in(value)
        parts = {k: self._corrected(v, keys, drops=k not in keys) for k, v in values.items()}
        return replace_values(value, parts) if parts else value

    def _carries_truncated(self, value: Any) -> bool:
        """Whether a value is a truncated call that the node took out of a message, or sends on."""
        call = sent_call(value if isinstance(value, Send) else Send("", value))
        refused = (each for _, calls in self._damaged for each in calls if each.args is None)
        return call is not None and any(each.is_completed(call) for each in refused)

    def _corrected_message(self, message: AIMessage, *, drops: bool) -> AIMessage:
        for ids, calls in self._damaged:
            if message.id is None or message.id in ids:
                copied = cast("AIMessage", message_chunk_to_message(message))
                copied = copied.model_copy() if copied is message else copied
                if self._correct(copied, calls, nested=drops):
                    return copied
        return message

    # --- asking again ----------------------------------------------------------------------

    def asks_again(self, message: object, *, asked: bool = False) -> TypeGuard[AIMessage]:
        """Whether the model is asked once more, because its message is unusable; logged.

        Only if one model ran below the node, no tool and no graph, and no interrupt was answered.
        Otherwise a WARNING reports that the turn may end.

        Args:
            message: The message that the node adds to its history; None if it cannot be read from
                the output.
            asked: Whether the model was asked again already. Default: False.
        """
        if isinstance(message, AIMessage):
            is_known = any(message.id is None or message.id in ids for ids, _ in self._damaged)
            if not (is_known and is_unusable(message)):
                return False
        elif not self._is_unusable:
            return False
        can_ask = isinstance(message, AIMessage) and self.ran_one_model
        asks = can_ask and not asked and not self._run.has_answers
        if asks:
            logger.info("asked the model of thread %r again: %s", self._run.thread_id, _UNUSABLE)
        else:
            logger.warning("the turn of thread %r may end here: %s", self._run.thread_id, _UNUSABLE)
        return asks


def guarded(guard: TruncationGuard, request: IORequest) -> IORequest:
    """A request with a guard. The caller corrects its output with it."""

    def call() -> Any:
        with guard:
            return request.sync()

    async def acall() -> Any:
        with guard:
            return await request.asynchronous()

    return IORequest(call, acall)
