"""What a chunk costs when the stream is split, as a ratio to the bare stream.

    python tests/benchmarks/bench_streaming.py

"bare" is the same source without us, measured in the same run: a generator that does nothing (the
worst case for us), and a chat model of LangChain, which does nothing but stream.
"""

# ruff: noqa: T201 - a script prints

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult

from langgraph_patch.streaming import (
    AdaptiveChecker,
    asplit_stream,
    final_answers,
    first_chunk_checker,
    full_stream_checker,
    message_from_stream,
    split_stream,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator

CHUNKS = 5_000
ROUNDS = 15
TOKENS = [AIMessageChunk("word ", id="1") for _ in range(CHUNKS)]
PAIRS = [(token, {"langgraph_node": "agent"}) for token in TOKENS]


class Model(BaseChatModel):
    """A chat model that has nothing to do but to stream."""

    @property
    def _llm_type(self) -> str:
        return "bench"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        return generate_from_stream(self._stream())

    def _stream(self, *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        for _ in range(CHUNKS):
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


def trusting() -> AdaptiveChecker:
    """A checker that decides by the first text."""
    checker = AdaptiveChecker(min_calls=1)
    piece = {"name": "t", "args": "{}", "id": "c1", "index": 0}
    split_stream([AIMessageChunk("", tool_call_chunks=[piece])], checker=checker, model="a:b")
    return checker


def best(*ways: Callable[[], object]) -> list[float]:
    """The best time of each way per chunk, in microseconds; measured in turns, to be fair."""
    times = [float("inf")] * len(ways)
    for _ in range(ROUNDS):
        for place, way in enumerate(ways):
            gc.collect()
            start = time.perf_counter()
            way()
            times[place] = min(times[place], time.perf_counter() - start)
    return [seconds / CHUNKS * 1e6 for seconds in times]


def report(title: str, names: Iterable[str], times: list[float]) -> None:
    """One line for each way, the first being the measure of the others."""
    print(title)
    for name, spent in zip(names, times, strict=True):
        print(f"  {name:<32}{spent:8.3f} us a chunk   x{spent / times[0]:.2f}")


def splits(source: Callable[[], Iterable[Any]]) -> dict[str, Callable[[], object]]:
    """The bare source, and the source split by each checker."""
    checkers = {"first_chunk_checker": first_chunk_checker, "adaptive, early": trusting()}
    checkers |= {"full_stream_checker": full_stream_checker}
    ways: dict[str, Callable[[], object]] = {"bare": lambda: drain(source())}
    for name, checker in checkers.items():
        split = partial(split_stream, checker=checker, model="a:b")
        ways[name] = lambda split=split: drain(split(source())[1])
    return ways


async def adrain() -> None:
    """Read the async source to the end."""
    async for _ in agenerator(TOKENS):
        pass


async def asplit() -> None:
    """Split the async source and read it to the end."""
    _, chunks = await asplit_stream(agenerator(TOKENS), checker=first_chunk_checker)
    async for _ in chunks:
        pass


def main() -> None:
    """Measure and print."""
    model = Model()
    for title, ways in {
        "split_stream over a generator": splits(lambda: generator(TOKENS)),
        "split_stream over a chat model": splits(lambda: model.stream("hi")),
        "asplit_stream over an async generator": {
            "bare": lambda: asyncio.run(adrain()),
            "first_chunk_checker": lambda: asyncio.run(asplit()),
        },
        "final_answers over a generator": {
            "bare": lambda: drain(generator(PAIRS)),
            "first_chunk_checker": lambda: drain(
                final_answers(generator(PAIRS), checker=first_chunk_checker)
            ),
            "full_stream_checker": lambda: drain(
                final_answers(generator(PAIRS), checker=full_stream_checker)
            ),
        },
        "message_from_stream": {
            "LangChain's sum": lambda: TOKENS[0] + TOKENS[1:],
            "message_from_stream": lambda: message_from_stream(TOKENS),
        },
    }.items():
        report(title, ways, best(*ways.values()))


if __name__ == "__main__":
    main()
