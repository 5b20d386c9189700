"""Filter a graph's message stream: pass on the tokens of final answers only.

The messages of all nodes arrive interleaved in one stream. Each message gets a `Turn` of its
own, by its id, and a checker decides about it.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage

from langgraph_patch.errors import StreamError
from langgraph_patch.streaming.checkers import Checker, Turn, adaptive_checker, model_key

_Token: TypeAlias = tuple[BaseMessage, dict[str, Any]]


def final_answers(
    graph_stream: Iterable[Any], *, checker: Checker = adaptive_checker
) -> Iterator[tuple[BaseMessage, dict[str, Any]]]:
    """Yield the tokens of final answers from a graph's message stream, as soon as possible.

    A final answer is a message of a model that calls no tools. The messages of parallel nodes
    are distinguished by their ids. The tokens of each message are buffered until `checker` has
    decided about it. If a tool call arrives after a message was taken for an answer, nothing
    more of that message is yielded.

    Args:
        graph_stream: The return value of `graph.stream(..., stream_mode="messages")`: pairs of
            a message (or a chunk of one) and its metadata. To show one node only, filter the
            pairs by `metadata["langgraph_node"]`.
        checker: Decides whether a message calls tools. Default: `adaptive_checker`. An answer
            is then yielded when it is complete, until its model has shown in 20 turns that it
            calls tools before it writes text; from then on it is yielded from its first
            token. `first_chunk_checker` always yields an answer from its first token, and
            with it any text before a tool call. `full_stream_checker` yields an answer when
            it is complete, and is never wrong.

    Yields:
        The pairs that belong to a final answer, unchanged.

    Raises:
        StreamError: If the stream yields anything but such pairs, as with another
            `stream_mode`, a list of modes or `subgraphs=True`.
        Exception: Whatever the graph or the checker raises. The graph's stream is closed in
            each of these cases, and if the caller stops early.

    Example:
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
    answers = _AnswerFilter(checker)
    source = iter(graph_stream)
    try:
        for item in source:
            yield from answers.add(item)
        yield from answers.finish()
    finally:
        if (close := getattr(source, "close", None)) is not None:
            close()


async def afinal_answers(
    graph_stream: AsyncIterable[Any], *, checker: Checker = adaptive_checker
) -> AsyncIterator[tuple[BaseMessage, dict[str, Any]]]:
    """Yield the tokens of final answers from a graph's async message stream.

    A final answer is a message of a model that calls no tools. The messages of parallel nodes
    are distinguished by their ids. The tokens of each message are buffered until `checker` has
    decided about it. If a tool call arrives after a message was taken for an answer, nothing
    more of that message is yielded.

    Args:
        graph_stream: The return value of `graph.astream(..., stream_mode="messages")`: pairs
            of a message (or a chunk of one) and its metadata. To show one node only, filter
            the pairs by `metadata["langgraph_node"]`.
        checker: Decides whether a message calls tools. Default: `adaptive_checker`. An answer
            is then yielded when it is complete, until its model has shown in 20 turns that it
            calls tools before it writes text; from then on it is yielded from its first
            token. `first_chunk_checker` always yields an answer from its first token, and
            with it any text before a tool call. `full_stream_checker` yields an answer when
            it is complete, and is never wrong.

    Yields:
        The pairs that belong to a final answer, unchanged.

    Raises:
        StreamError: If the stream yields anything but such pairs, as with another
            `stream_mode`, a list of modes or `subgraphs=True`.
        Exception: Whatever the graph or the checker raises. The graph's stream is closed in
            each of these cases, and if the caller closes this generator early.

    Example:
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
    answers = _AnswerFilter(checker)
    source = aiter(graph_stream)
    try:
        async for item in source:
            for token in answers.add(item):
                yield token
        for token in answers.finish():
            yield token
    finally:
        if (aclose := getattr(source, "aclose", None)) is not None:
            await aclose()


class _AnswerFilter:
    """The messages that have not ended yet, by id, each with its buffered tokens."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._open: dict[str | None, tuple[Turn, list[_Token]]] = {}

    def add(self, item: object) -> Sequence[_Token]:
        """Read the next pair of the stream and return the tokens that can be shown now."""
        message, metadata = token = _token(item)
        if not isinstance(message, AIMessage):
            return ()
        if message.id not in self._open:
            model = model_key(metadata.get("ls_provider"), metadata.get("ls_model_name"))
            self._open[message.id] = Turn(self._checker, model), []
        turn, buffer = self._open[message.id]
        turn.take(message)
        buffer.append(token)
        if turn.ended:
            del self._open[message.id]
        if turn.answer is None:
            return ()
        answer_tokens = () if turn.answer or turn.late_call else tuple(buffer)
        buffer.clear()
        return answer_tokens

    def finish(self) -> Iterator[_Token]:
        """At the end of the stream, yield the answers without a chunk marked as last."""
        for turn, buffer in self._open.values():
            # The Responses API starts each message with an empty chunk under another id. Such
            # a chunk stays undecided and contains no text, so it is not shown.
            if turn.answer is None and turn.spoke:
                turn.end()
                if not turn.answer:
                    yield from buffer


def _token(item: object) -> _Token:
    match item:
        case (BaseMessage(), dict()):
            return cast("_Token", item)
    raise StreamError(
        "Expected pairs of a message and its metadata, the form of stream_mode='messages' "
        f"without subgraphs=True; got {item!r}."
    )
