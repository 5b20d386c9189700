"""Filter a graph's stream: pass on the tokens of final answers only."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Literal, overload

from langchain_core.messages import BaseMessage

from langgraph_patch.errors import StreamError
from langgraph_patch.streaming.adaptive import adaptive_checker
from langgraph_patch.streaming.answer_filter import AnswerFilter
from langgraph_patch.streaming.checkers import Checker
from langgraph_patch.streaming.shapes import StreamReader
from langgraph_patch.streaming.sources import async_iterator, sync_iterator

_EXPECTED = "the stream of a graph"


@overload
def final_answers(
    graph_stream: Iterable[Any],
    *,
    checker: Checker = ...,
    internal: bool = ...,
    other_modes: Literal[False] = ...,
) -> Iterator[tuple[BaseMessage, dict[str, Any]]]: ...


@overload
def final_answers(
    graph_stream: Iterable[Any],
    *,
    checker: Checker = ...,
    internal: bool = ...,
    other_modes: bool,
) -> Iterator[Any]: ...


def final_answers(
    graph_stream: Iterable[Any],
    *,
    checker: Checker = adaptive_checker,
    internal: bool = False,
    other_modes: bool = False,
) -> Iterator[Any]:
    """Yield the tokens of final answers from a graph's stream, as soon as possible.

    A final answer is a message of a model that calls no tools. The tokens of each message are
    held until `checker` has decided about it. If the run ends with tool messages (those of a
    `return_direct` tool, or the one of a structured answer of `ToolStrategy`), these are yielded
    at the end.

    A checker that decides early can be wrong, and a model can fail in the middle of an answer and
    be called again (`RetryPolicy`, `with_retry`, `with_fallbacks`, `ModelRetryMiddleware`,
    `ModelFallbackMiddleware`). What was yielded of such a message is retracted: a pair of
    `RemoveMessage(id=...)`, with the id of its tokens, and the metadata with the reason under
    `RETRACTED_KEY`. Drop the tokens with that id. If more models run side by side in one task,
    a message may be retracted and then yielded again, whole.

    Args:
        graph_stream: What a graph streams: `graph.stream(..., stream_mode="messages")`, with a
            list of modes that contains `"messages"`, `subgraphs=True` or `version="v2"` too;
            the stream of a `RemoteGraph`; that of the SDK's `runs.stream` with the mode
            `"messages-tuple"` or `"events"`; or the events of `astream_events`.
        checker: Decides whether a message calls tools. Default: `adaptive_checker`. An answer
            is then yielded when it is complete, until its model has shown in 20 turns that it
            calls tools before it writes text; from then on it is yielded from its first
            token. `first_chunk_checker` always yields an answer from its first text, and
            retracts text before a tool call. `live_checker` yields reasoning at once, too.
            `full_stream_checker` yields an answer when it is complete; it retracts nothing.
        internal: Whether to yield, too, what models wrote inside tools and for LangChain's
            middleware (summaries, tool selection). Default: False.
        other_modes: Whether to yield items of other stream modes, and other events, unchanged
            between the tokens. Default: False.

    Yields:
        Pairs of a message, or a chunk of one, and its metadata. To show one node only, filter
        them by `metadata["langgraph_node"]`. With `other_modes`, also the items of other modes,
        as they came.

    Raises:
        StreamError: If the stream is not that of a graph, is an async stream, or contains a
            server's report that the run failed (which `other_modes` yields instead).
        Exception: Whatever the graph or the checker raises. Text that is held when the graph
            raises is yielded first. The graph's stream is closed in each of these cases, and if
            the caller stops early.

    Examples:
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch.streaming import final_answers
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
    source = sync_iterator(graph_stream, expected=_EXPECTED, twin="Use afinal_answers.")
    return _filtered(source, _Answers(checker, internal=internal, other_modes=other_modes))


@overload
def afinal_answers(
    graph_stream: AsyncIterable[Any],
    *,
    checker: Checker = ...,
    internal: bool = ...,
    other_modes: Literal[False] = ...,
) -> AsyncIterator[tuple[BaseMessage, dict[str, Any]]]: ...


@overload
def afinal_answers(
    graph_stream: AsyncIterable[Any],
    *,
    checker: Checker = ...,
    internal: bool = ...,
    other_modes: bool,
) -> AsyncIterator[Any]: ...


def afinal_answers(
    graph_stream: AsyncIterable[Any],
    *,
    checker: Checker = adaptive_checker,
    internal: bool = False,
    other_modes: bool = False,
) -> AsyncIterator[Any]:
    """Yield the tokens of final answers from a graph's async stream, as soon as possible.

    A final answer is a message of a model that calls no tools. The tokens of each message are
    held until `checker` has decided about it. If the run ends with tool messages (those of a
    `return_direct` tool, or the one of a structured answer of `ToolStrategy`), these are yielded
    at the end.

    A checker that decides early can be wrong, and a model can fail in the middle of an answer and
    be called again (`RetryPolicy`, `with_retry`, `with_fallbacks`, `ModelRetryMiddleware`,
    `ModelFallbackMiddleware`). What was yielded of such a message is retracted: a pair of
    `RemoveMessage(id=...)`, with the id of its tokens, and the metadata with the reason under
    `RETRACTED_KEY`. Drop the tokens with that id. If more models run side by side in one task,
    a message may be retracted and then yielded again, whole.

    Args:
        graph_stream: What a graph streams: `graph.astream(..., stream_mode="messages")`, with a
            list of modes that contains `"messages"`, `subgraphs=True` or `version="v2"` too;
            `graph.astream_events(...)`; the stream of a `RemoteGraph`; or that of the SDK's
            `runs.stream` with the mode `"messages-tuple"` or `"events"`.
        checker: Decides whether a message calls tools. Default: `adaptive_checker`. An answer
            is then yielded when it is complete, until its model has shown in 20 turns that it
            calls tools before it writes text; from then on it is yielded from its first
            token. `first_chunk_checker` always yields an answer from its first text, and
            retracts text before a tool call. `live_checker` yields reasoning at once, too.
            `full_stream_checker` yields an answer when it is complete; it retracts nothing.
        internal: Whether to yield, too, what models wrote inside tools and for LangChain's
            middleware (summaries, tool selection). Default: False.
        other_modes: Whether to yield items of other stream modes, and other events, unchanged
            between the tokens. Default: False.

    Yields:
        Pairs of a message, or a chunk of one, and its metadata. To show one node only, filter
        them by `metadata["langgraph_node"]`. With `other_modes`, also the items of other modes,
        as they came.

    Raises:
        StreamError: If the stream is not that of a graph, is a sync stream, or contains a
            server's report that the run failed (which `other_modes` yields instead).
        Exception: Whatever the graph or the checker raises. Text that is held when the graph
            raises is yielded first. The graph's stream is closed in each of these cases, and if
            the caller closes this generator early.

    Examples:
        >>> import asyncio
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch.streaming import afinal_answers
        >>> async def tokens():  # in place of graph.astream(..., stream_mode="messages")
        ...     yield AIMessage("Good morning.", id="1"), {"langgraph_node": "agent"}
        >>> async def show():
        ...     return [token.text async for token, _ in afinal_answers(tokens())]
        >>> asyncio.run(show())
        ['Good morning.']
    """
    source = async_iterator(graph_stream, expected=_EXPECTED, twin="Use final_answers.")
    return _afiltered(source, _Answers(checker, internal=internal, other_modes=other_modes))


class _Answers:
    """Reads the items of one stream and returns what is yielded for each."""

    def __init__(self, checker: Checker, *, internal: bool, other_modes: bool) -> None:
        self._reader = StreamReader()
        self._filter = AnswerFilter(checker, internal=internal)
        self._other_modes = other_modes

    def add(self, item: object) -> Sequence[Any]:
        """What is yielded after the next item."""
        tokens = self._reader.read(item)
        if tokens is None:
            return self._other(item)
        if len(tokens) == 1:
            return self._filter.add(tokens[0])
        return [shown for token in tokens for shown in self._filter.add(token)]

    def _other(self, item: object) -> Sequence[Any]:
        if not self._reader.is_error:
            return [item] if self._other_modes else ()
        if self._other_modes:
            return [*self._filter.finish(failed=True), item]
        raise StreamError(
            f"The server reported that the run failed: {item!r:.500}. Pass other_modes=True to "
            "get such reports as items of the stream."
        )

    def finish(self, *, failed: bool = False) -> Iterator[Any]:
        """What is yielded after the last item, or before an error."""
        self._filter.is_interrupted = self._reader.is_interrupted
        return self._filter.finish(failed=failed or self._reader.is_error)


def _filtered(source: Iterator[Any], answers: _Answers) -> Iterator[Any]:
    try:
        for item in source:
            yield from answers.add(item)
        yield from answers.finish()
    except Exception:  # any: what is held comes before the error, which is raised again
        yield from answers.finish(failed=True)
        raise
    finally:
        if (close := getattr(source, "close", None)) is not None:
            close()


async def _afiltered(source: AsyncIterator[Any], answers: _Answers) -> AsyncIterator[Any]:
    try:
        async for item in source:
            for shown in answers.add(item):
                yield shown
        for shown in answers.finish():
            yield shown
    except Exception:  # any: what is held comes before the error, which is raised again
        for shown in answers.finish(failed=True):
            yield shown
        raise
    finally:
        if (aclose := getattr(source, "aclose", None)) is not None:
            await aclose()
