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

import asyncio
import gc
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar
from itertools import chain
from typing import Any, NamedTuple, TypeGuard
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import LLMResult
from langchain_core.tracers.context import register_configure_hook

from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import IORequest
from langgraph_patch.asking.streamed_calls import (
    StreamedCall,
    StreamedCalls,
    drop_truncated,
    is_unusable,
    refuse_truncated,
)
from langgraph_patch.asking.unfinished import Correction, Unfinished
from langgraph_patch.errors import UnfinishedError, logger
from langgraph_patch.history.fields import text_of

_MOST_IN_A_ROW = 9
"""How many messages in a row may be truncated or unusable in one run of a node.

A good message ends the row. An attempt that failed is not counted: the application repeats it. Its
own loop over cut answers, with a larger limit each time, is over before that.
"""

_UNUSABLE = "its message has no complete tool call and no answer"

_GUARD: ContextVar[Any] = ContextVar("langgraph_patch_guard", default=None)
"""The guard of the innermost patched node that runs. Only this one acts."""

register_configure_hook(_GUARD, inheritable=True)


def in_charge() -> TruncationGuard | None:
    """The guard that is in charge of what runs here."""
    guard: TruncationGuard | None = _GUARD.get()
    return guard


class Asked(NamedTuple):
    """What a model run was asked, as callbacks are told it.

    Attributes:
        model: The model, serialized.
        messages: Its input.
        options: The options of the request.
        metadata: Those of the run.
        in_a_row: How many messages in a row were damaged when it began.
    """

    model: Any
    messages: Any
    options: Any
    metadata: Mapping[str, Any] | None
    in_a_row: int


class TruncationGuard(BaseCallbackHandler):
    """Collects the chunks of model runs and corrects their messages when they end.

    It is in charge of what runs inside `acting`. Chunks are only stored, and judged once
    when the model run ends. The message of `on_llm_end` is the object that `invoke` returns, so it
    is corrected in place. It must not define `tap_output_*` methods: they would make LangChain
    stream.

    A node that loops until its model has an answer would never end if the model never finishes. So
    the tenth message in a row that is truncated or unusable is an `UnfinishedError`.

    In a history that is not patched nothing would answer an invalid call, and the next model would
    refuse it. So in a graph below the node, and in a node without a patched history, a truncated
    call is dropped from the message, and a WARNING reports it.

    Args:
        run: The run of the node.
        drops: Whether the node has no patched history. Default: False.
        of_request: Whether it is around one request, and not around code of the application: what
            the node did before does not matter then. Default: False.

        sees: Is called with what each model is asked that it is in charge of. Default: nothing is.

    Attributes:
        unfinished: The messages that are truncated or unusable.
        errors: Those of model runs before their first chunk.
        answered: Whether a model below the node gave an answer, or a part of one.
        answered_last: Whether one has, and none has failed since.
        answers: The texts of what they answered.
        has_closed: Whether calls of the history were closed for this run of the node. No tool runs
            then that no model has called in it: the node would run a call that it found closed.
        passed_on: Errors that someone nearer to the model has looked at.
    """

    run_inline = True
    raise_error = True
    ignore_retriever = True
    ignore_retry = True
    ignore_custom_event = True
    ignore_agent = False
    ignore_chain = False

    def __init__(
        self,
        run: Run,
        *,
        drops: bool = False,
        of_request: bool = False,
        sees: Callable[[Any], None] | None = None,
    ) -> None:
        self._run, self._of_request, self._sees = run, of_request, sees
        self.drops = drops
        self.errors: list[BaseException] = []
        self.passed_on: list[BaseException] = []
        self.ignore_agent = self.ignore_chain = drops  # the node is not run again: no need to know
        self._runs: dict[UUID, StreamedCalls] = {}
        self.unfinished: list[Unfinished] = []
        self._asked: dict[UUID, Asked] = {}
        self._open: set[UUID] = set()  # what has begun and not ended
        self._in_a_row = 0  # damaged messages since the last good one
        self._chains: list[Any] = []  # that of each runnable, which may be a graph
        self._ran_tool = False
        self.answered = self.answered_last = False
        self.answers: list[str] = []
        self.has_closed = self._has_called = False
        self._is_unusable = False  # whether the newest message of a model of the node is

    @contextmanager
    def acting(self) -> Iterator[None]:
        """Be in charge of what runs inside."""
        around, token = in_charge(), _GUARD.set(self)
        try:
            yield
        finally:
            with suppress(ValueError):  # thrown away with its event loop, it is in another context
                _GUARD.reset(token)
            if around is not None:
                around.learn(self)

    def around(self, request: IORequest) -> IORequest:
        """A request with this guard in charge. The caller corrects its output with it."""

        def call() -> Any:
            with self.acting():
                return request.sync()

        async def acall() -> Any:
            with self.acting():
                return await request.asynchronous()

        return IORequest(call, acall)

    def learn(self, nearer: TruncationGuard) -> None:
        """Note what ran below a guard that was in charge: no callback has shown it to this one."""
        self._ran_tool |= nearer._ran_tool
        self._has_called |= nearer._has_called
        self.answered |= nearer.answered
        self.answers += nearer.answers
        self._asked |= nearer._asked
        self._chains += nearer._chains

    # --- callbacks -------------------------------------------------------------------------

    def on_tool_start(self, *_: Any, **__: Any) -> None:
        """Note that a tool runs below the node."""
        self._ran_tool = True
        if self.has_closed and not self._has_called:
            raise RuntimeError("a tool would run a call that was closed for this request")

    def on_chain_start(self, *_: Any, run_id: UUID, metadata: Any = None, **__: Any) -> None:
        """Note what runs below the node."""
        self._chains.append(metadata)
        self._open.add(run_id)

    def on_chain_end(self, *_: Any, run_id: UUID, **__: Any) -> None:
        """Note that it has ended."""
        self._open.discard(run_id)

    on_chain_error = on_chain_end

    def on_llm_start(self, *asked: Any, run_id: UUID, metadata: Any = None, **options: Any) -> None:
        """Collect the chunks of a model run, if this guard is in charge."""
        own = options.get("invocation_params")
        self._asked[run_id] = Asked(asked[:1], asked[1:], own, metadata, self._in_a_row)
        self._open.add(run_id)
        if _GUARD.get() is self:
            self._runs[run_id] = StreamedCalls()
            if self._sees is not None:
                self._sees(asked[1:])

    on_chat_model_start = on_llm_start  # without it LangChain formats the whole history as text

    def on_llm_new_token(self, *_: Any, chunk: Any = None, run_id: UUID, **__: Any) -> None:
        """Store a chunk."""
        if (run := self._runs.get(run_id)) is not None:
            run.add(getattr(chunk, "message", None))

    def on_stream_event(self, *_: Any, run_id: UUID, **__: Any) -> None:
        """Note that LangChain reads the run as v3 events.

        It judges their calls strictly itself, and does not report all chunks.
        """
        if run_id in self._runs:
            self._runs[run_id].is_judged = True

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """Correct the message of a run, and note whether it is unusable."""
        self.answered = self.answered_last = True
        self._open.discard(run_id)
        generations = response.generations[0] if response.generations else []
        self.answers += [each.text for each in generations[:1]]
        message = getattr(generations[0], "message", None) if generations else None
        self._has_called |= bool(getattr(message, "tool_calls", None))
        if not isinstance(message, AIMessage) or run_id not in self._runs:
            self._ended(run_id)  # nothing, if someone nearer to the model is in charge of it
            return
        asked = self._asked[run_id]
        is_nested = self._is_nested(asked.metadata)
        if (damaged := self._ended(run_id, message)) is not None:
            self._correct(message, damaged.calls, drops=is_nested)
        if is_nested:
            return
        self._is_unusable = damaged is not None and is_unusable(message)
        # A message that was asked for before another one was damaged does not follow it.
        in_a_row = min(asked.in_a_row, self._in_a_row)
        self._count(in_a_row, is_damaged=damaged is not None)

    def follow(self, nearer: TruncationGuard) -> None:
        """Count the message that a guard below the node was in charge of."""
        if nearer._run.namespace == self._run.namespace:  # not in a graph below the node
            self._is_unusable = False
            self._count(self._in_a_row, is_damaged=nearer._in_a_row > 0)

    def _count(self, in_a_row: int, *, is_damaged: bool) -> None:
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
        run = self._runs.get(run_id)
        self.answered_last = False
        if run is not None and run.is_streamed:
            self.answered = True
        self._open.discard(run_id)
        self.errors.append(error)
        self._ended(run_id, failed=True)

    def corrected(self, output: Any, keys: Collection[str]) -> Any:
        """The output of the node, with the messages corrected that it merged itself."""
        if not self.unfinished:
            return output
        return Correction(self.unfinished, keys, self._correct).of(output, drops=not keys)

    def _correct(
        self, message: AIMessage, calls: Sequence[StreamedCall], *, drops: bool = False
    ) -> bool:
        """Whether `message` has a truncated call; it is corrected in place."""
        if not (drops or self.drops):
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
    ) -> Unfinished | None:
        """What a run did not finish, if this guard is in charge of it."""
        if (run := self._runs.pop(run_id, None)) is None:
            return None
        calls = run.calls(message, failed=failed)
        is_truncated = any(call.args is None for call in calls)
        if not (is_truncated or (message is not None and is_unusable(message))):
            return None
        ids = set() if message is None else {text_of(message.id)}
        self.unfinished.append(Unfinished(run.message_ids | ids, calls))
        return self.unfinished[-1]

    # --- what ran --------------------------------------------------------------------------

    @property
    def ran_one_model(self) -> bool:
        """Whether one model ran below the node, and nothing else was begun."""
        return len(self._asked) == 1 and not self.began_more

    @property
    def only_failed(self) -> bool:
        """Whether models below the node failed before a chunk, and nothing else was begun."""
        return bool(self.errors) and not self.answered and not self.began_more

    @property
    def own_errors(self) -> list[BaseException]:
        """The errors that nobody nearer to the model has looked at."""
        return [e for e in self.errors if not any(e is other for other in self.passed_on)]

    @property
    def began_more(self) -> bool:
        """Whether more was begun below the node than models that have ended.

        A tool, a graph, a `@task`, an answered `interrupt()`; any run, or any coroutine of the
        node, that has not ended.
        """
        if self._ran_tool or self._open or _has_coroutine(self):
            return True
        if not self._of_request and (self._run.has_asked or self._run.has_begun_tasks):
            return True
        of_models = [asked.metadata for asked in self._asked.values()]
        return any(map(self._is_nested, [*of_models, *self._chains]))

    @property
    def models(self) -> list[Any]:
        """The models that ran below the node, each with the options of its request."""
        return [(asked.model, asked.options) for asked in self._asked.values()]

    @property
    def sent(self) -> list[list[BaseMessage]]:
        """The histories with which models were asked below the node, as far as callbacks show."""
        asked = chain.from_iterable(each.messages for each in self._asked.values())
        return [read for read in chain.from_iterable(asked) if isinstance(read, list)]

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
        self._open.clear()

    # --- asking again ----------------------------------------------------------------------

    def asks_again(self, message: object, *, asked: bool = False) -> TypeGuard[AIMessage]:
        """Whether the model is asked once more, because its message is unusable; logged.

        Only if one model ran below the node, and nothing else was begun. Otherwise a WARNING
        reports that the turn may end.

        Args:
            message: The message that the node adds to its history; None if it cannot be read from
                the output.
            asked: Whether the model was asked again already. Default: False.
        """
        if isinstance(message, AIMessage):
            is_unfinished = any(each.may_be(message) for each in self.unfinished)
            if not (is_unfinished and is_unusable(message)):
                return False
        elif not self._is_unusable:
            return False
        asks = isinstance(message, AIMessage) and self.ran_one_model and not asked
        if asks:
            logger.info("asked the model of thread %r again: %s", self._run.thread_id, _UNUSABLE)
        else:
            logger.warning("the turn of thread %r may end here: %s", self._run.thread_id, _UNUSABLE)
        return asks


def _has_coroutine(guard: TruncationGuard) -> bool:
    """Whether a coroutine that the node has started still runs beside it.

    No callback shows what it will do. `Task.get_context` is not in Python 3.11; the garbage
    collector knows the context of a task in every version.
    """
    try:
        others = asyncio.all_tasks() - {asyncio.current_task()}
    except RuntimeError:  # there is no loop
        return False
    parts = chain.from_iterable(map(gc.get_referents, others))
    return any(isinstance(part, Context) and part.get(_GUARD) is guard for part in parts)
