"""What a chunk costs when the stream is split, compared with the bare stream.

"bare" is the same source alone: a generator that does nothing (the worst case), and
a chat model of LangChain, which does nothing but stream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from measuring import Row, in_turns, ratio, spent

from langgraph_patch.streaming import (
    asplit_stream,
    final_answers,
    first_chunk_checker,
    full_stream_checker,
    message_from_stream,
    split_stream,
)

CHUNKS, QUICK_CHUNKS = 5_000, 100
Ways = Mapping[str, Callable[[], object]]


class Model(BaseChatModel):
    """A chat model that has nothing to do but to stream that many chunks."""

    count: int

    @property
    def _llm_type(self) -> str:
        return "bench"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        return generate_from_stream(self._stream())

    def _stream(self, *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        for _ in range(self.count):
            yield ChatGenerationChunk(message=AIMessageChunk("word "))


def generator(items: Iterable[Any]) -> Iterator[Any]:
    """A source that costs as little as one can."""
    yield from items


async def agenerator(items: Iterable[Any]) -> AsyncIterator[Any]:
    """The same, async."""
    for item in items:
        yield item


def drain(stream: Iterable[Any]) -> None:
    """Read to the end."""
    deque(stream, maxlen=0)


def splits(source: Callable[[], Iterable[Any]]) -> Ways:
    """The bare source, and the source split by each checker."""
    checkers = {
        "first_chunk_checker": first_chunk_checker,
        "full_stream_checker": full_stream_checker,
    }
    ways: dict[str, Callable[[], object]] = {"bare": lambda: drain(source())}
    for name, checker in checkers.items():
        split = partial(split_stream, checker=checker)
        ways[name] = lambda split=split: drain(split(source())[1])
    return ways


async def adrain(tokens: Iterable[Any]) -> None:
    """Read the async source to the end."""
    async for _ in agenerator(tokens):
        pass


async def asplit(tokens: Iterable[Any]) -> None:
    """Split the async source and read it to the end."""
    _, chunks = await asplit_stream(agenerator(tokens), checker=first_chunk_checker)
    async for _ in chunks:
        pass


def sources(count: int) -> Mapping[str, Ways]:
    """What is split or merged, and the ways to do it, the bare one first."""
    model = Model(count=count)
    tokens = [AIMessageChunk("word ", id="1") for _ in range(count)]
    metadata = {"langgraph_node": "agent", "langgraph_checkpoint_ns": "agent:1", "ls_provider": "a"}
    pairs = [(token, metadata) for token in tokens]
    return {
        "split_stream, generator": splits(lambda: generator(tokens)),
        "split_stream, chat model": splits(lambda: model.stream("hi")),
        "asplit_stream, generator": {
            "bare": lambda: asyncio.run(adrain(tokens)),
            "first_chunk_checker": lambda: asyncio.run(asplit(tokens)),
        },
        "final_answers, generator": {
            "bare": lambda: drain(generator(pairs)),
            "first_chunk_checker": lambda: drain(
                final_answers(generator(pairs), checker=first_chunk_checker)
            ),
            "full_stream_checker": lambda: drain(
                final_answers(generator(pairs), checker=full_stream_checker)
            ),
        },
        "a message of all chunks": {
            "LangChain's sum": lambda: tokens[0] + tokens[1:],
            "message_from_stream": lambda: message_from_stream(tokens),
        },
    }


def rows(*, quick: bool) -> Iterator[Row]:
    """The ratio of each way to the bare one, and what a chunk costs in both."""
    count, rounds = (QUICK_CHUNKS, 1) if quick else (CHUNKS, 11)
    for source, ways in sources(count).items():
        times = in_turns({name: partial(spent, way) for name, way in ways.items()}, rounds)
        bare, *others = ways
        each = {name: min(found) / count * 1e6 for name, found in times.items()}
        for name in others:
            yield Row(
                f"{source}: {name} / {bare}",
                ratio(times, name, bare),
                detail=f"{each[bare]:.2f} -> {each[name]:.2f} us a chunk",
            )
