"""Decide whether a turn calls tools, then read its stream on as if nothing had been read."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Self, cast

from langchain_core.messages import AIMessageChunk

from langgraph_patch.streaming.checkers import Checker, Turn, full_stream_checker


def split_stream(
    stream: Iterable[AIMessageChunk],
    *,
    checker: Checker = full_stream_checker,
    model: str | None = None,
) -> tuple[bool, Chunks]:
    """Wait until it is known whether a turn calls tools, and keep what was read for that.

    Args:
        stream: The chunks of one turn, as `chat_model.stream(...)` gives them.
        checker: Who decides. Default: `full_stream_checker`, which is never wrong.
        model: The model's `"provider:name"`, for a checker that learns per model. Default:
            as the chunks say it.

    Returns:
        Whether the turn calls tools, and an iterator over all its chunks: the same objects,
        those already read first, the others as they come. What the stream raises is raised
        in its place in that iterator; if it came before the decision, the answer is False.

    Raises:
        Exception: What the checker raises; the stream is closed then.

    Example:
        A turn that calls goes to the tools as a message, an answer goes to the client, chunk
        by chunk:

        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch.streaming import message_from_stream, split_stream
        >>> def model(question):  # stands for chat_model.stream
        ...     if "weather" in question:
        ...         yield AIMessageChunk("Let me see.")
        ...         call = {"name": "weather", "args": '{"city": "Rome"}', "id": "c1", "index": 0}
        ...         yield AIMessageChunk("", tool_call_chunks=[call])
        ...     else:
        ...         yield from (AIMessageChunk(text) for text in ("Good ", "morning."))
        >>> def reply(question):
        ...     calls_tools, chunks = split_stream(model(question))
        ...     with chunks:  # closes the model's stream, also if the client goes away
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
        return chunks._decide(), chunks  # noqa: SLF001 - the other half of this function
    except BaseException:
        chunks.close()
        raise


async def asplit_stream(
    stream: AsyncIterable[AIMessageChunk],
    *,
    checker: Checker = full_stream_checker,
    model: str | None = None,
) -> tuple[bool, AsyncChunks]:
    """Do the same as `split_stream` with an async stream.

    Args:
        stream: The chunks of one turn, as `chat_model.astream(...)` gives them.
        checker: As in `split_stream`.
        model: As in `split_stream`.

    Returns:
        Whether the turn calls tools, and an async iterator over all its chunks.

    Raises:
        Exception: What the checker raises; the stream is closed then.

    Example:
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
        return await chunks._decide(), chunks  # noqa: SLF001 - as in split_stream
    except BaseException:
        await chunks.aclose()
        raise


class _Replay:
    """What both iterators share: the chunks that are held, and an error that comes after."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._held: deque[AIMessageChunk] = deque()
        self._error: Exception | None = None
        self._closed = False

    @property
    def late_call(self) -> bool:
        """Whether a tool call has come after the answer that there was none.

        Only a checker that answers before the end can be wrong like this. The call's
        chunks come like all others: whoever reads them should look here at the end.
        """
        return self._turn.late_call

    def _hold(self) -> bool:
        self._held.extend(cast("list[AIMessageChunk]", self._turn.chunks))
        return bool(self._turn.answer)

    def _replayed(self) -> AIMessageChunk | None:
        if self._held:
            return self._held.popleft()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return None

    def _close(self) -> None:
        self._held.clear()
        self._error = None
        self._closed = True


class Chunks(_Replay, Iterator[AIMessageChunk]):
    """The chunks of one turn, from the first one on, while they come.

    `close()`, or the end of a `with` block, closes the model's stream.
    """

    def __init__(self, stream: Iterable[AIMessageChunk], turn: Turn) -> None:
        super().__init__(turn)
        self._source = iter(stream)

    def _decide(self) -> bool:
        while self._turn.answer is None and self._error is None:
            try:
                chunk = next(self._source)
            except StopIteration:
                self._turn.end()
            except Exception as error:  # noqa: BLE001 - raised where the reader meets it
                self._error = error
            else:
                self._turn.take(chunk)
        return self._hold()

    def __next__(self) -> AIMessageChunk:
        if (chunk := self._replayed()) is not None:
            return chunk
        if self._closed:
            raise StopIteration
        chunk = next(self._source)
        self._turn.take(chunk)
        return chunk

    def close(self) -> None:
        """Stop reading: nothing more comes, and the model's stream is closed."""
        self._close()
        if (close := getattr(self._source, "close", None)) is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncChunks(_Replay, AsyncIterator[AIMessageChunk]):
    """`Chunks` of an async stream: `aclose()` or the end of `async with` closes it."""

    def __init__(self, stream: AsyncIterable[AIMessageChunk], turn: Turn) -> None:
        super().__init__(turn)
        self._source = aiter(stream)

    async def _decide(self) -> bool:
        while self._turn.answer is None and self._error is None:
            try:
                chunk = await anext(self._source)
            except StopAsyncIteration:
                self._turn.end()
            except Exception as error:  # noqa: BLE001 - raised where the reader meets it
                self._error = error
            else:
                self._turn.take(chunk)
        return self._hold()

    async def __anext__(self) -> AIMessageChunk:
        if (chunk := self._replayed()) is not None:
            return chunk
        if self._closed:
            raise StopAsyncIteration
        chunk = await anext(self._source)
        self._turn.take(chunk)
        return chunk

    async def aclose(self) -> None:
        """Stop reading: nothing more comes, and the model's stream is closed."""
        self._close()
        if (aclose := getattr(self._source, "aclose", None)) is not None:
            await aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
