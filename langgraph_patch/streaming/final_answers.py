"""Of a graph's token stream, the tokens of final answers.

The messages of all nodes come interleaved in one stream; a `Turn` for each of them decides.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage

from langgraph_patch.errors import StreamError
from langgraph_patch.streaming.checkers import Checker, Turn, adaptive_checker

_Token: TypeAlias = tuple[BaseMessage, dict[str, Any]]


def final_answers(
    graph_stream: Iterable[Any], *, checker: Checker = adaptive_checker
) -> Iterator[tuple[BaseMessage, dict[str, Any]]]:
    """Of a graph's token stream, pass on the tokens of final answers, as they come.

    A final answer is a model's message without tool calls. The messages of parallel nodes
    are told apart by their ids; each is held until `checker` has decided about it. How live
    an answer is depends on the checker: `adaptive_checker` shows it when it is complete until
    the model has proved that it calls before it speaks, and from then on from its first
    token; `first_chunk_checker` always does so and shows what a model says ahead of a call;
    `full_stream_checker` never does so and is never wrong. After a call that came late
    nothing more of that message is passed on.

    Args:
        graph_stream: `graph.stream(..., stream_mode="messages")`: pairs of a message (or a
            chunk of one) and its metadata. To show one node only, filter them by
            `langgraph_node`.
        checker: Who decides. Default: the process's `adaptive_checker`.

    Yields:
        The pairs that belong to a final answer, unchanged.

    Raises:
        StreamError: If the stream holds anything but such pairs.
        Exception: What the graph or the checker raises. The graph's stream is closed then,
            and when the reader stops early.

    Example:
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch.streaming import final_answers
        >>> call = {"name": "weather", "args": "{}", "id": "c1", "index": 0}
        >>> tokens = [  # as graph.stream(..., stream_mode="messages") gives them
        ...     AIMessageChunk("Let me see.", id="1"),
        ...     AIMessageChunk("", id="1", tool_call_chunks=[call]),
        ...     AIMessageChunk("Sunny ", id="2"),
        ...     AIMessageChunk("all day.", id="2", chunk_position="last"),
        ... ]
        >>> "".join(token.text for token, _ in final_answers((token, {}) for token in tokens))
        'Sunny all day.'
    """
    answers = _Answers(checker)
    source = iter(graph_stream)
    try:
        for item in source:
            yield from answers.take(item)
        yield from answers.rest()
    finally:
        if (close := getattr(source, "close", None)) is not None:
            close()


async def afinal_answers(
    graph_stream: AsyncIterable[Any], *, checker: Checker = adaptive_checker
) -> AsyncIterator[tuple[BaseMessage, dict[str, Any]]]:
    """Do the same as `final_answers` with `graph.astream(..., stream_mode="messages")`.

    Args:
        graph_stream: Pairs of a message and its metadata.
        checker: As in `final_answers`.

    Yields:
        The pairs that belong to a final answer, unchanged.

    Raises:
        StreamError: As `final_answers`.
        Exception: As `final_answers`.

    Example:
        >>> import asyncio
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph_patch.streaming import afinal_answers
        >>> async def tokens():  # as graph.astream(..., stream_mode="messages") gives them
        ...     yield AIMessage("Good morning.", id="1"), {"langgraph_node": "agent"}
        >>> async def show():
        ...     return [token.text async for token, _ in afinal_answers(tokens())]
        >>> asyncio.run(show())
        ['Good morning.']
    """
    answers = _Answers(checker)
    source = aiter(graph_stream)
    try:
        async for item in source:
            for token in answers.take(item):
                yield token
        for token in answers.rest():
            yield token
    finally:
        if (aclose := getattr(source, "aclose", None)) is not None:
            await aclose()


class _Answers:
    """The messages that are under way, by id, and what is held of each."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._open: dict[str | None, tuple[Turn, list[_Token]]] = {}

    def take(self, item: object) -> Sequence[_Token]:
        """Read the next pair; what may be shown now."""
        message, metadata = token = _token(item)
        if not isinstance(message, AIMessage):
            return ()
        if message.id not in self._open:
            self._open[message.id] = Turn(self._checker, _model_of(metadata)), []
        turn, held = self._open[message.id]
        turn.take(message)
        held.append(token)
        if turn.ended:
            del self._open[message.id]
        if turn.answer is None:
            return ()
        shown = () if turn.answer or turn.late_call else tuple(held)
        held.clear()
        return shown

    def rest(self) -> Iterator[_Token]:
        """At the end of the stream, the answers that it never called ended."""
        for turn, held in self._open.values():
            # The Responses API opens each message with an empty chunk under another id.
            if turn.answer is None and turn.spoke:
                turn.end()
                if not turn.answer:
                    yield from held


def _token(item: object) -> _Token:
    match item:
        case (BaseMessage(), dict()):
            return cast("_Token", item)
    raise StreamError(
        f"Expected a pair of a message and its metadata, as stream_mode='messages' gives it "
        f"without subgraphs=True; got {item!r}."
    )


def _model_of(metadata: dict[str, Any]) -> str | None:
    provider, name = metadata.get("ls_provider"), metadata.get("ls_model_name")
    return f"{provider}:{name}" if provider and name else None
