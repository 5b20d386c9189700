"""Filter a graph's stream: pass on the tokens of final answers only.

A message is no answer if it calls a tool, if it is a failed attempt of a model that was called
again, if a model wrote it inside a tool, or if a middleware asked for it. Much of this is known
only after the first tokens. What was yielded by then is retracted: the pair of a `RemoveMessage`
with the message's id and the metadata of the message, with the reason under `RETRACTED_KEY`.

What a stream shows of it:

- A failed attempt never gets a chunk that is marked as the last one, and another message begins
  in the same task. If another chunk of it arrives, it was no failed attempt but one of several
  models that run side by side in one task: its tokens are yielded again.
- A model runs inside a tool if its node, or a graph around it, is a tool node: it is called
  `tools`, or it answers calls of other nodes and makes none.
- LangChain's middleware marks its own model calls with `lc_source` in the metadata.
- Tool messages are the answer of a run that ends with them: those of a `return_direct` tool, and
  the one with which `ToolStrategy` confirms a structured answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, overload

from langchain_core.messages import AIMessage, RemoveMessage, ToolMessage

from langgraph_patch._langgraph import storage
from langgraph_patch._text import short
from langgraph_patch.errors import MessagesError, PatchError, logger
from langgraph_patch.history.placeholders import is_placeholder
from langgraph_patch.streaming.checkers import Checker, Turn, checked_checker, full_stream_checker
from langgraph_patch.streaming.streams import (
    Token,
    apass_on,
    graph_of,
    mode_and_data,
    model_messages,
    open_stream,
    pass_on,
    shows_pause,
    token_of,
)

RETRACTED_KEY: Final = "langgraph_patch_retracted"
"""Key in the metadata of a retraction; the value is the reason.

`"tool_call"`: the message calls a tool. `"failed_attempt"`: the model failed, and was called
again. `"inside_tool"`: a model wrote it inside a tool.
"""

_Reason: TypeAlias = Literal["tool_call", "failed_attempt", "inside_tool"]

_EXPECTED = "the stream of a graph"


# --- the public functions ------------------------------------------------------------------


@overload
def final_answers(
    stream: Iterable[Any], *, checker: Checker = ..., internal: bool = ...
) -> Iterator[Token]: ...


@overload
def final_answers(
    stream: Iterable[Any], *, checker: Checker = ..., internal: bool = ..., other_modes: bool
) -> Iterator[Any]: ...


def final_answers(
    stream: Iterable[Any],
    *,
    checker: Checker = full_stream_checker,
    internal: bool = False,
    other_modes: bool = False,
) -> Iterator[Any]:
    """Yield the tokens of final answers from a graph's stream, as soon as possible.

    A final answer is a message of a model that calls no tools. The tokens of each message are
    held until `checker` has decided about it. If the run ends with tool messages (those of a
    `return_direct` tool, or the one of a structured answer of `ToolStrategy`), these are yielded
    at the end.

    A checker that decides early can be wrong, and a model can fail in the middle of an answer and
    be called again. What was yielded of such a message is retracted: a pair of
    `RemoveMessage(id=...)`, with the id of its tokens, and the metadata with the reason under
    `RETRACTED_KEY`. If more models run side by side in one task, a message may be retracted and
    then yielded again, whole.

    Args:
        stream: What a graph streams: `graph.stream(..., stream_mode="messages")`, with a
            list of modes that contains `"messages"`, `subgraphs=True` or `version="v2"` too;
            the stream of a `RemoteGraph`; or that of the SDK's `runs.stream` with the mode
            `"messages-tuple"`.
        checker: Decides whether a message calls tools. Default: `full_stream_checker`, which
            yields an answer when it is complete, and retracts nothing but failed attempts.
            `first_chunk_checker` yields an answer from its first text, and retracts text
            before a tool call. A checker of your own can yield reasoning at once, too.
        internal: Whether to yield, too, what models wrote inside tools and for LangChain's
            middleware (summaries, tool selection). Default: False.
        other_modes: Whether to yield items of other stream modes unchanged between the tokens.
            Default: False.

    Yields:
        Pairs of a message, or a chunk of one, and its metadata. To show one node only, filter
        them by `metadata["langgraph_node"]`. With `other_modes`, also the items of other modes,
        as they came.

    Raises:
        OptionError: If `checker` cannot be called, or returns anything but True, False or None.
        MessagesError: If the stream is not that of a graph, is an async stream, or shows messages
            of a model but no item of the mode `"messages"`.
        PatchError: If it reports that the run failed, which `other_modes` yields instead.
        Exception: Whatever the graph or the checker raises. Text that is held when the graph
            raises is yielded first. The graph's stream is closed in each of these cases, and if
            the caller stops early.

    Examples:
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch import final_answers
        >>> call = {"name": "weather", "args": "{}", "id": "c1", "index": 0}
        >>> tokens = [  # in place of graph.stream(..., stream_mode="messages")
        ...     AIMessageChunk("Let me see.", id="1"),
        ...     AIMessageChunk("", id="1", tool_call_chunks=[call]),
        ...     AIMessageChunk("Sunny ", id="2"),
        ...     AIMessageChunk("all day.", id="2", chunk_position="last"),
        ... ]
        >>> "".join(token.text for token, _ in final_answers((token, {}) for token in tokens))
        'Sunny all day.'
    """
    source = open_stream(stream, expected=_EXPECTED, remedy="use afinal_answers")
    return pass_on(source, _Answers(checker, internal=internal, other_modes=other_modes))


@overload
def afinal_answers(
    stream: AsyncIterable[Any], *, checker: Checker = ..., internal: bool = ...
) -> AsyncIterator[Token]: ...


@overload
def afinal_answers(
    stream: AsyncIterable[Any], *, checker: Checker = ..., internal: bool = ..., other_modes: bool
) -> AsyncIterator[Any]: ...


def afinal_answers(
    stream: AsyncIterable[Any],
    *,
    checker: Checker = full_stream_checker,
    internal: bool = False,
    other_modes: bool = False,
) -> AsyncIterator[Any]:
    """Same as `final_answers`, but for the async stream of a graph.

    Args:
        stream: What `graph.astream(...)`, a `RemoteGraph` or the SDK's async `runs.stream` yields,
            in one of the forms that `final_answers` reads.
        checker: Decides whether a message calls tools. Default: `full_stream_checker`.
        internal: Whether to yield, too, what models wrote inside tools and for LangChain's
            middleware. Default: False.
        other_modes: Whether to yield items of other stream modes unchanged. Default: False.

    Yields:
        Pairs of a message, or a chunk of one, and its metadata; retractions; with `other_modes`
        the items of other modes.

    Raises:
        OptionError: If `checker` cannot be called.
        PatchError: If the stream is a sync stream, or in the cases of `final_answers`.
        Exception: Whatever the graph or the checker raises. The graph's stream is closed then, and
            if the caller closes this generator early.

    Examples:
        >>> import asyncio
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch import afinal_answers
        >>> async def tokens():  # in place of graph.astream(..., stream_mode="messages")
        ...     yield AIMessage("Good morning.", id="1"), {"langgraph_node": "agent"}
        >>> async def show():
        ...     return [token.text async for token, _ in afinal_answers(tokens())]
        >>> asyncio.run(show())
        ['Good morning.']
    """
    source = open_stream(stream, expected=_EXPECTED, remedy="use final_answers", asynchronous=True)
    return apass_on(source, _Answers(checker, internal=internal, other_modes=other_modes))


# --- the messages of a run -----------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Message:
    """A message of a model, as far as it has arrived.

    Attributes:
        turn: Decides whether it is an answer.
        task: The namespace of the task that called the model; `""` if it is unknown.
        hidden: Why it is no answer. `"inside_tool"` is final, and holds for middleware, too.
        tokens: The tokens that are shown if it is an answer; of an ended one, the last.
        is_shown: Whether its tokens were shown, and not retracted.
        calls: The ids of its tool calls that have no tool message yet.
    """

    turn: Turn
    task: str
    hidden: _Reason | None
    tokens: list[Token] = field(default_factory=list)
    is_shown: bool = False
    calls: set[str] = field(default_factory=set)

    def show(self) -> list[Token]:
        """The tokens that can be shown after a further chunk, or the retraction."""
        if self.turn.answer is None:
            return []
        if self.turn.called or self.turn.answer:
            return self.hide("tool_call")
        tokens = self.tokens[-1:] if self.is_shown else self.tokens.copy()
        self.is_shown = True
        return tokens

    def hide(self, reason: _Reason) -> list[Token]:
        """Note that it is no answer; return the retraction, if it was shown."""
        self.hidden = reason
        if not self.is_shown:
            return []
        self.is_shown = False
        message, metadata = self.tokens[-1]
        return [(RemoveMessage(id=str(message.id)), {**metadata, RETRACTED_KEY: reason})]


_TOOLS: Final = "tools"
"""LangGraph's and LangChain's name for a `ToolNode`: before its first result nothing else tells."""

_HIDDEN_BY_NAME = (
    "final_answers shows nothing that models wrote in the node %r, which has returned no tool "
    "message: it may be no ToolNode. Give it another name, or pass internal=True"
)


class _Answers:
    """Takes the items of one stream, and passes on the tokens of final answers."""

    def __init__(self, checker: Checker, *, internal: bool, other_modes: bool) -> None:
        self._checker = checked_checker(checker)
        self._internal = internal
        self._other_modes = other_modes
        self._has_stopped = False
        """Whether the run paused or failed: then its tool messages are no answer."""
        self._messages: list[_Message] = []
        self._newest: dict[tuple[str, str | None], _Message] = {}
        """The newest message of each task and id."""
        self._callers: dict[str, _Message] = {}
        """The message that made each call."""
        self._calling_nodes: set[object] = set()
        self._tool_nodes: set[object] = {_TOOLS}
        self._is_hidden_by_name = False
        """Whether a message is hidden by the name of its node alone: no result came from there."""
        self._results: dict[object, tuple[ToolMessage, dict[str, Any]]] = {}
        """The tool messages since the last message of a model."""
        self._stored: dict[str, int] = {}
        """How many messages of models the state of each graph had first."""
        self._mode: str | None = None
        """`messages` once an item of it has come, else a mode that shows a message of a model."""

    def add(self, item: Any) -> Iterable[Any]:
        """What is yielded after the next item."""
        mode, data = mode_and_data(item)
        if mode not in ("messages", "messages-tuple"):
            return self._add_other(mode, data, item)
        self._mode = "messages"
        token = token_of(data, item)
        message, metadata = token
        if isinstance(message, AIMessage):
            return self._add_chunk(message, token)
        if isinstance(message, ToolMessage):
            return self._add_result(message, metadata)
        return ()

    def finish(self, *, failed: bool) -> Iterator[Token]:
        """What is held at the end of the stream.

        Of a stream that failed, all held text is yielded: it is what the model had written.
        """
        if self._mode not in (None, "messages") and not failed:
            raise MessagesError(
                f"The mode {self._mode!r} of the stream shows messages of a model, and there "
                f"is no item of the mode 'messages': stream with stream_mode='messages', or with a "
                f"list of modes that contains it ('messages-tuple' for a server)."
            ) from None
        for message in self._messages:
            turn = message.turn
            # The Responses API starts each message with an empty chunk under another id. Such
            # a chunk stays undecided and contains nothing, so it is not shown.
            if turn.answer is None and turn.wrote and not message.hidden:
                if not failed:
                    turn.end()
                if not (turn.answer or turn.called):
                    yield from message.tokens
        self._messages.clear()
        if not (failed or self._has_stopped):
            if self._is_hidden_by_name:
                logger.warning(_HIDDEN_BY_NAME, _TOOLS)
            for result, metadata in self._results.values():
                caller = self._callers.get(result.tool_call_id)
                if caller is None or not caller.calls:
                    yield result, metadata

    def _add_other(self, mode: str, data: object, item: object) -> Iterable[Any]:
        if mode in ("messages/partial", "messages/complete"):
            raise MessagesError(
                f"The server's stream mode 'messages' repeats the whole text in each item; got "
                f"{mode!r}. Ask for stream_mode='messages-tuple'."
            )
        if mode == "error":
            yield from self.finish(failed=True)
            if not self._other_modes:
                raise PatchError(
                    f"The server reported that the run failed: {short(item, 500)}. Pass "
                    "other_modes=True to get such reports as items of the stream."
                )
        if mode in ("updates", "values") and self._mode is None:
            count = model_messages(data)
            stored = self._stored.setdefault(graph_of(item), count) if mode == "values" else 0
            self._mode = mode if count > stored else None
        self._has_stopped |= mode == "error" or shows_pause(mode, data, item)
        if self._other_modes:
            yield item

    # --- messages of models ------------------------------------------------------------

    def _add_chunk(self, chunk: AIMessage, token: Token) -> list[Token]:
        message = self._message_of(chunk, token[1])
        if message.hidden == "inside_tool":
            return []
        turn, message.hidden = message.turn, None
        was_empty = not (turn.wrote or turn.called)
        turn.take(chunk)
        if chunk.tool_calls:
            self._calling_nodes.add(token[1].get("langgraph_node"))
            called = {call_id: message for call in chunk.tool_calls if (call_id := call.get("id"))}
            message.calls.update(called)
            self._callers.update(called)
        retracted: list[Token] = []
        if was_empty and (turn.wrote or turn.called):
            # It follows the tool messages, and the failed attempts in its task.
            self._results.clear()
            for other in self._of_task(message.task):
                if other is not message and not other.turn.ended and not other.hidden:
                    retracted += other.hide("failed_attempt")
        message.tokens.append(token)
        shown = message.show()
        if turn.ended or turn.answer:
            message.tokens = message.tokens[-1:]
        return [*retracted, *shown]

    def _message_of(self, chunk: AIMessage, metadata: dict[str, Any]) -> _Message:
        """The message of a chunk. An id can be used again when its message has ended."""
        task = _task_of(metadata)
        message = self._newest.get((task, chunk.id))
        if message is None or message.turn.ended:
            nodes = {metadata.get("langgraph_node"), *storage.nodes_of_namespace(task)}
            is_internal = not nodes.isdisjoint(self._tool_nodes) or metadata.get("lc_source")
            hidden: _Reason | None = "inside_tool" if is_internal and not self._internal else None
            self._is_hidden_by_name |= hidden is not None and _TOOLS in nodes
            message = _Message(Turn(self._checker), task, hidden)
            self._newest[task, chunk.id] = message
            self._messages.append(message)
        return message

    def _of_task(self, task: str) -> list[_Message]:
        """The messages of a task; none if the task is unknown."""
        return [message for message in self._messages if task and message.task == task]

    # --- tool messages -----------------------------------------------------------------

    def _add_result(self, result: ToolMessage, metadata: dict[str, Any]) -> list[Token]:
        """Note a tool message. What models wrote in its task is retracted, if it ran a tool.

        The task did so if it answers a call of another node. A node that makes calls itself, or
        through a graph inside it, is no tool node: it may answer older calls, for example with
        placeholders.
        """
        task = _task_of(metadata)
        if not self._tool_nodes.isdisjoint(storage.nodes_of_namespace(task)[:-1]):
            return []  # of an agent inside a tool
        caller = self._callers.get(result.tool_call_id)
        if caller is not None:
            caller.calls.discard(result.tool_call_id)
        if not is_placeholder(result):
            # A tool message of a subgraph can come again, as output of the node with it.
            self._results[result.id or id(result)] = (result, metadata)
        node = metadata.get("langgraph_node")
        self._is_hidden_by_name &= node != _TOOLS
        if not task or caller is None:
            return []
        if node in self._calling_nodes.union(storage.nodes_of_namespace(caller.task)):
            return []
        self._tool_nodes.add(node)
        messages = [] if self._internal else self._of_task(task)
        return [token for message in messages for token in message.hide("inside_tool")]


def _task_of(metadata: dict[str, Any]) -> str:
    """The namespace of the task that a message comes from; `""` if it is unknown."""
    namespace = metadata.get("langgraph_checkpoint_ns")
    return namespace if isinstance(namespace, str) else ""
