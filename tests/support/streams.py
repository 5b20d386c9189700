"""Streams for tests: chunks, a source that knows how far it was read, and both kinds of I/O."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any

from langchain_core.messages import AIMessageChunk, HumanMessage, RemoveMessage
from langchain_core.tools import tool

from langgraph_patch.streaming import (
    Turn,
    afinal_answers,
    asplit_stream,
    final_answers,
    split_stream,
)

INPUT = {"messages": [HumanMessage("How is the weather?", id="h1")]}


@tool
def weather(city: str) -> str:
    """The weather."""
    return f"sunny in {city}"


def live(turn: Turn) -> bool | None:
    """A checker of an application: whatever can be shown is shown at once."""
    if turn.called:
        return True
    return False if turn.wrote or turn.ended else None


def say(content: Any = "", **fields: Any) -> AIMessageChunk:
    """A chunk with text, blocks or nothing."""
    return AIMessageChunk(content=content, **fields)


def call(args: str | None = None, *, index: Any = 0, **start: str) -> AIMessageChunk:
    """A chunk with a piece of a call; `id` and `name` make it the first piece."""
    piece = {"name": start.get("name"), "args": args, "id": start.get("id"), "index": index}
    return AIMessageChunk(content="", tool_call_chunks=[piece])


def think(text: str) -> AIMessageChunk:
    """A chunk with reasoning."""
    return AIMessageChunk([{"type": "thinking", "thinking": text, "index": 0}])


LAST = say(chunk_position="last")
START = call("", id="c1", name="weather")
REST = call('{"city": "Rome"}')


def same(left: list[Any], right: list[Any]) -> bool:
    """Whether two lists hold the same objects, each alone or in a pair with its metadata."""
    objects = [[x[0] if isinstance(x, tuple) else x for x in items] for items in (left, right)]
    return list(map(id, objects[0])) == list(map(id, objects[1]))


def left(pairs: list[Any]) -> list[str]:
    """What a client has on its screen in the end: the texts, without the retracted ones."""
    texts: dict[Any, str] = {}
    for token, _ in pairs:
        if isinstance(token, RemoveMessage):
            del texts[token.id]
        else:
            texts[token.id] = texts.get(token.id, "") + token.text
    return [shown for shown in texts.values() if shown]


class Source:
    """A stream, sync and async, that knows how far it was read and whether it is open."""

    def __init__(self, items: list[Any], error: Exception | None = None) -> None:
        self.items = items
        self.error = error
        self.read = 0
        self.open = True

    def __iter__(self) -> Generator[Any]:
        try:
            for item in self.items:
                self.read += 1
                yield item
            if self.error:
                raise self.error
        finally:
            self.open = False

    async def __aiter__(self) -> AsyncIterator[Any]:
        items = iter(self)
        try:
            for item in items:
                await asyncio.sleep(0)
                yield item
        finally:
            items.close()


class Waited:
    """An async generator that is read like a sync one."""

    def __init__(self, items: Any, wait: Callable[[Awaitable[Any]], Any]) -> None:
        self.items, self.wait = items, wait

    def __iter__(self) -> Waited:
        return self

    def __next__(self) -> Any:
        try:
            return self.wait(anext(self.items))
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Stop reading."""
        self.wait(self.items.aclose())


class Both:
    """The functions of one kind, sync or async, called and read in the same way."""

    def __init__(self, *, asynchronous: bool) -> None:
        self.asynchronous = asynchronous
        self.loop = asyncio.new_event_loop()

    def split(self, stream: Any, **options: Any) -> tuple[bool, Any]:
        """`split_stream` or `asplit_stream`."""
        if not self.asynchronous:
            return split_stream(stream, **options)
        answer, chunks = self.loop.run_until_complete(asplit_stream(stream, **options))
        return answer, Waited(chunks, self.loop.run_until_complete)

    def answers(self, stream: Any, **options: Any) -> Any:
        """`final_answers` or `afinal_answers`."""
        if not self.asynchronous:
            return final_answers(stream, **options)
        return Waited(afinal_answers(stream, **options), self.loop.run_until_complete)

    def stream(self, graph: Any, value: Any, **options: Any) -> Any:
        """What a graph streams."""
        return (graph.astream if self.asynchronous else graph.stream)(value, **options)
