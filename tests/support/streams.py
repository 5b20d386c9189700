"""Streams for tests: chunks, a source that knows how far it was read, and both kinds of I/O."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import aclosing, closing
from typing import Any

from langchain_core.messages import AIMessageChunk

from langgraph_patch.streaming import (
    Turn,
    afinal_answers,
    asplit_stream,
    final_answers,
    split_stream,
)


def live(turn: Turn) -> bool | None:
    """A checker of an application: whatever can be shown is shown at once."""
    if turn.called:
        return True
    return False if turn.wrote or turn.ended else None


def say(content: Any = "", **more: Any) -> AIMessageChunk:
    """A chunk with text, blocks or nothing."""
    return AIMessageChunk(content=content, **more)


def call(args: str | None = None, *, index: int | None = 0, **start: str) -> AIMessageChunk:
    """A chunk with a piece of a call; `id` and `name` make it the first piece."""
    piece = {"name": start.get("name"), "args": args, "id": start.get("id"), "index": index}
    return AIMessageChunk(content="", tool_call_chunks=[piece])


def think(text: str) -> AIMessageChunk:
    """A chunk with reasoning."""
    return AIMessageChunk([{"type": "thinking", "thinking": text, "index": 0}])


LAST = say(chunk_position="last")
START = call("", id="c1", name="weather")
REST = call('{"city": "Rome"}')


class Source:
    """A model's stream, sync and async, that knows how far it was read and whether it is open."""

    def __init__(self, chunks: list[Any], error: Exception | None = None) -> None:
        self.chunks = chunks
        self.error = error
        self.read = 0
        self.open = True

    def __iter__(self) -> Iterator[Any]:
        try:
            for chunk in self.chunks:
                self.read += 1
                yield chunk
            if self.error:
                raise self.error
        finally:
            self.open = False

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            for chunk in self.chunks:
                await asyncio.sleep(0)
                self.read += 1
                yield chunk
            if self.error:
                raise self.error
        finally:
            self.open = False


class Sync:
    """The sync functions, awaitable like the async ones."""

    async def split(self, source: Source, **options: Any) -> tuple[bool, Generator[AIMessageChunk]]:
        """Split."""
        return split_stream(source, **options)

    async def next(self, chunks: Iterator[Any]) -> Any:
        """The next item."""
        return next(chunks)

    async def all(self, chunks: Iterator[Any]) -> list[Any]:
        """Every item that is left."""
        return list(chunks)

    async def close(self, chunks: Any) -> None:
        """Stop reading."""
        chunks.close()

    async def read_within(self, chunks: Generator[Any], number: int) -> None:
        """Read some chunks in a block that closes."""
        with closing(chunks):
            for _ in range(number):
                next(chunks)

    def answers(self, source: Source, **options: Any) -> Iterator[Any]:
        """The final answers."""
        return final_answers(source, **options)


class Async:
    """The async functions."""

    async def split(
        self, source: Source, **options: Any
    ) -> tuple[bool, AsyncGenerator[AIMessageChunk]]:
        """Split."""
        return await asplit_stream(source, **options)

    async def next(self, chunks: AsyncIterator[Any]) -> Any:
        """The next item."""
        return await anext(chunks)

    async def all(self, chunks: AsyncIterator[Any]) -> list[Any]:
        """Every item that is left."""
        return [chunk async for chunk in chunks]

    async def close(self, chunks: Any) -> None:
        """Stop reading."""
        await chunks.aclose()

    async def read_within(self, chunks: AsyncGenerator[Any], number: int) -> None:
        """Read some chunks in a block that closes."""
        async with aclosing(chunks):
            for _ in range(number):
                await anext(chunks)

    def answers(self, source: Source, **options: Any) -> AsyncIterator[Any]:
        """The final answers."""
        return afinal_answers(source, **options)


def same(left: list[Any], right: list[Any]) -> bool:
    """Whether two lists hold the same objects, each alone or in a pair with its metadata."""
    objects = [[x[0] if isinstance(x, tuple) else x for x in items] for items in (left, right)]
    return list(map(id, objects[0])) == list(map(id, objects[1]))
