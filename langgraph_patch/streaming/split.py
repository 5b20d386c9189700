"""Find out whether a streamed turn calls tools, without losing the chunks that were read.

`split_stream` reads until a checker has decided, and returns the decision with an iterator that
yields the chunks already read and then reads on. An error of the stream is raised by that
iterator, after the chunks that arrived before it, so a caller handles it in one place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, Self

from langchain_core.messages import AIMessageChunk

from langgraph_patch._sansio import IOGenerator, IORequest, run_async, run_sync
from langgraph_patch.streaming.checkers import Checker, Turn, full_stream_checker
from langgraph_patch.streaming.sources import async_iterator, sync_iterator

_END: Any = object()
_EXPECTED = "the chunks of one turn"


def split_stream(
    stream: Iterable[AIMessageChunk],
    *,
    checker: Checker = full_stream_checker,
    model: str | None = None,
) -> tuple[bool, Chunks]:
    """Read a turn until it is clear whether it calls tools, and keep the chunks.

    Args:
        stream: The chunks of one turn: the return value of `chat_model.stream(...)`.
        checker: Decides whether the turn calls tools. It is called with the `Turn` after each
            chunk until it returns True or False. Default: `full_stream_checker`, which is
            never wrong, and reads an answer to its end.
        model: The model as `"provider:name"`, for a checker that learns for each model
            (`AdaptiveChecker`). Default: None, the model is taken from the chunks, if they
            name it.

    Returns:
        Whether the turn calls tools, and an iterator over all its chunks: first those that
        were read for the decision, then the others as they arrive. An exception of the
        stream is raised by that iterator, at its place. If it came before the decision,
        the turn counts as one without tool calls.

    Raises:
        StreamError: If `stream` is no stream of that kind; the message names the function for
            it.
        Exception: Whatever the checker raises. The stream is closed first.

    Examples:
        The tool calls of a turn are run, an answer is shown chunk by chunk:

        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch.streaming import message_from_stream, split_stream
        >>> def model(question):  # in place of chat_model.stream
        ...     if "weather" in question:
        ...         yield AIMessageChunk("Let me see.")
        ...         call = {"name": "weather", "args": '{"city": "Rome"}', "id": "c1", "index": 0}
        ...         yield AIMessageChunk("", tool_call_chunks=[call])
        ...     else:
        ...         yield from (AIMessageChunk(text) for text in ("Good ", "morning."))
        >>> def reply(question):
        ...     calls_tools, chunks = split_stream(model(question))
        ...     with chunks:  # closes the model's stream, also if the client disconnects
        ...         if calls_tools:
        ...             for call in message_from_stream(chunks).tool_calls:
        ...                 print("run:", call["name"], call["args"])
        ...         else:
        ...             for chunk in chunks:
        ...                 print("show:", repr(chunk.text))
        >>> reply("How is the weather?")
        run: weather {'city': 'Rome'}
        >>> reply("Hello!")
        show: 'Good '
        show: 'morning.'
    """
    chunks = Chunks(stream, Turn(checker, model))
    try:
        return run_sync(chunks._decide()), chunks  # noqa: SLF001 - both are this module's
    except BaseException:  # any: the caller never sees the stream that was opened
        chunks.close()
        raise


async def asplit_stream(
    stream: AsyncIterable[AIMessageChunk],
    *,
    checker: Checker = full_stream_checker,
    model: str | None = None,
) -> tuple[bool, AsyncChunks]:
    """Read an async turn until it is clear whether it calls tools, and keep the chunks.

    Args:
        stream: The chunks of one turn: the return value of `chat_model.astream(...)`.
        checker: Decides whether the turn calls tools. It is called with the `Turn` after each
            chunk until it returns True or False. Default: `full_stream_checker`, which is
            never wrong, and reads an answer to its end.
        model: The model as `"provider:name"`, for a checker that learns for each model
            (`AdaptiveChecker`). Default: None, the model is taken from the chunks, if they
            name it.

    Returns:
        Whether the turn calls tools, and an async iterator over all its chunks: first those
        that were read for the decision, then the others as they arrive. An exception of the
        stream is raised by that iterator, at its place. If it came before the decision,
        the turn counts as one without tool calls.

    Raises:
        StreamError: If `stream` is no stream of that kind; the message names the function for
            it.
        Exception: Whatever the checker raises. The stream is closed first.

    Examples:
        >>> import asyncio
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch.streaming import asplit_stream
        >>> async def model():
        ...     yield AIMessageChunk("Good ")
        ...     yield AIMessageChunk("morning.")
        >>> async def reply():
        ...     calls_tools, chunks = await asplit_stream(model())
        ...     async with chunks:
        ...         return calls_tools, [chunk.text async for chunk in chunks]
        >>> asyncio.run(reply())
        (False, ['Good ', 'morning.'])
    """
    chunks = AsyncChunks(stream, Turn(checker, model))
    try:
        return await run_async(chunks._decide()), chunks  # noqa: SLF001 - both are this module's
    except BaseException:  # any: the caller never sees the stream that was opened
        await chunks.aclose()
        raise


class _BufferedChunks:
    """The shared part of `Chunks` and `AsyncChunks`: what was read for the decision."""

    def __init__(self, source: Any, turn: Turn) -> None:
        self._source = source
        self._turn = turn
        self._buffer: deque[Any] = deque()
        self._error: Exception | None = None
        self._closed = False

    @property
    def late_call(self) -> bool:
        """Whether a tool call arrived after the decision that the turn calls no tools.

        This can only happen with a checker that decides before the end of the turn. The
        chunks of the call are yielded like all others. Read it after the last chunk.
        """
        return self._turn.late_call

    def _decide(self) -> IOGenerator[bool]:
        """Read until the checker has decided or the stream raises."""
        source = self._source
        read = IORequest(lambda: next(source, _END), lambda: anext(source, _END))
        while self._turn.answer is None and self._error is None:
            try:
                chunk = yield read
            except Exception as error:  # noqa: BLE001 - raised after the chunks before it
                self._error = error
            else:
                self._turn.end() if chunk is _END else self._turn.take(chunk)
        self._buffer.extend(self._turn.chunks)
        self._turn.chunks.clear()
        return bool(self._turn.answer)

    def _next_buffered(self) -> AIMessageChunk | None:
        if self._buffer:
            chunk: AIMessageChunk = self._buffer.popleft()
            return chunk
        if self._error is not None:
            error, self._error = self._error, None
            self._closed = True
            raise error
        return None

    def _discard(self) -> None:
        self._buffer.clear()
        self._error = None
        self._closed = True


class Chunks(_BufferedChunks, Iterator[AIMessageChunk]):
    """All chunks of one turn: first those that `split_stream` has read, then the others.

    `close()`, or the end of a `with` block, closes the model's stream.

    Examples:
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch.streaming import split_stream
        >>> calls_tools, chunks = split_stream([AIMessageChunk("Good "), AIMessageChunk("day.")])
        >>> with chunks:
        ...     next(chunks).text
        'Good '
        >>> list(chunks)
        []
    """

    def __init__(self, stream: Iterable[AIMessageChunk], turn: Turn) -> None:
        super().__init__(sync_iterator(stream, expected=_EXPECTED, twin="Use asplit_stream."), turn)

    def __next__(self) -> AIMessageChunk:
        if (buffered := self._next_buffered()) is not None:
            return buffered
        if self._closed:
            raise StopIteration
        try:
            chunk: AIMessageChunk = next(self._source)
        except StopIteration:
            self._turn.end()
            raise
        except Exception:  # any: the stream has ended, and the error is raised again
            self._closed = True
            raise
        self._turn.take(chunk)
        return chunk

    def close(self) -> None:
        """Close the model's stream. No further chunk is yielded."""
        self._discard()
        if (close := getattr(self._source, "close", None)) is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncChunks(_BufferedChunks, AsyncIterator[AIMessageChunk]):
    """All chunks of one turn: first those that `asplit_stream` has read, then the others.

    `aclose()`, or the end of an `async with` block, closes the model's stream.

    Examples:
        >>> import asyncio
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch.streaming import asplit_stream
        >>> async def model():
        ...     yield AIMessageChunk("Good ")
        ...     yield AIMessageChunk("day.")
        >>> async def first_chunk():
        ...     calls_tools, chunks = await asplit_stream(model())
        ...     async with chunks:
        ...         return (await anext(chunks)).text
        >>> asyncio.run(first_chunk())
        'Good '
    """

    def __init__(self, stream: AsyncIterable[AIMessageChunk], turn: Turn) -> None:
        super().__init__(async_iterator(stream, expected=_EXPECTED, twin="Use split_stream."), turn)

    async def __anext__(self) -> AIMessageChunk:
        if (buffered := self._next_buffered()) is not None:
            return buffered
        if self._closed:
            raise StopAsyncIteration
        try:
            chunk: AIMessageChunk = await anext(self._source)
        except StopAsyncIteration:
            self._turn.end()
            raise
        except Exception:  # any: the stream has ended, and the error is raised again
            self._closed = True
            raise
        self._turn.take(chunk)
        return chunk

    async def aclose(self) -> None:
        """Close the model's stream. No further chunk is yielded."""
        self._discard()
        if (aclose := getattr(self._source, "aclose", None)) is not None:
            await aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
