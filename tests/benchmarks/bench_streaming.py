"""What a chunk costs when the stream is split, compared with the bare stream.

"bare" is the same source alone: a generator that does nothing (the worst case), and
a chat model of LangChain, which does nothing but stream. Then: how many chunks a client waits for
the first token of an answer.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessageChunk, RemoveMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from measuring import Row, in_turns, ratios, spent

from langgraph_patch.streaming import (
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


def drain(stream: Iterable[Any]) -> None:
    """Read to the end."""
    deque(stream, maxlen=0)


def sources(count: int) -> Mapping[str, Ways]:
    """What is split or merged, and the ways to do it, the bare one first."""
    model = Model(count=count)
    tokens = [AIMessageChunk("word ", id="1") for _ in range(count)]
    metadata = {"langgraph_node": "agent", "langgraph_checkpoint_ns": "agent:1", "ls_provider": "a"}
    pairs = [(token, metadata) for token in tokens]

    def splits(source: Callable[[], Iterable[Any]], split: Callable[..., Any]) -> Ways:
        ways: dict[str, Callable[[], object]] = {"bare": lambda: drain(source())}
        for checker in (first_chunk_checker, full_stream_checker):
            ways[checker.__name__] = lambda checker=checker: drain(split(source(), checker=checker))
        return ways

    def second(*args: Any, **options: Any) -> Any:
        return split_stream(*args, **options)[1]

    return {
        "split_stream, generator": splits(lambda: generator(tokens), second),
        "split_stream, chat model": splits(lambda: model.stream("hi"), second),
        "final_answers, generator": splits(lambda: generator(pairs), final_answers),
        "a message of all chunks": {
            "LangChain's sum": lambda: tokens[0] + tokens[1:],
            "message_from_stream": lambda: message_from_stream(tokens),
        },
    }


def first_tokens(pause: float) -> Iterator[Row]:
    """When a client sees the first token of a turn whose chunks come every few milliseconds."""
    text = [AIMessageChunk(f"word{number} ", id="1") for number in range(10)]
    piece = {"name": "weather", "args": "{}", "id": "c1", "index": 0}
    call = AIMessageChunk("", id="1", tool_call_chunks=[piece])
    last = AIMessageChunk("", id="1", chunk_position="last")

    def paced(chunks: Iterable[AIMessageChunk]) -> Iterator[Any]:
        for chunk in chunks:
            time.sleep(pause)
            yield chunk, {"langgraph_node": "agent", "langgraph_checkpoint_ns": "agent:1"}

    for turn, chunks in {"text": [*text, last], "text, then a call": [*text, call, last]}.items():
        for checker in (first_chunk_checker, full_stream_checker):
            begin, first = time.perf_counter(), math.inf
            for token, _ in final_answers(paced(chunks), checker=checker):
                if not isinstance(token, RemoveMessage):
                    first = min(first, time.perf_counter() - begin)
            yield Row(
                f"first token of {turn!r}: {checker.__name__}",
                first / pause,
                "{:.0f} chunks" if first < math.inf else "none",
                detail=f"the turn has {len(chunks)}",
            )


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
                statistics.median(ratios(times, name, bare)),
                detail=f"{each[bare]:.2f} -> {each[name]:.2f} us a chunk",
            )
    yield from first_tokens(0.005 if quick else 0.05)
