"""What a chunk costs when the stream is split, and when a client has its first token."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from langchain_core.messages import AIMessageChunk, RemoveMessage
from measuring import Row, in_turns, ratios, spent

from langgraph_patch.streaming import (
    final_answers,
    first_chunk_checker,
    full_stream_checker,
    message_from_stream,
    split_stream,
)

Ways = Mapping[str, Callable[[], object]]


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


def sources(count: int) -> Mapping[str, Ways]:
    """What is split or merged, and the ways to do it, the bare one first."""
    tokens = [AIMessageChunk("word ", id="1") for _ in range(count)]
    metadata = {"langgraph_node": "agent", "langgraph_checkpoint_ns": "agent:1", "ls_provider": "a"}
    pairs = [(token, metadata) for token in tokens]

    def splits(items: list[Any], split: Callable[..., Any]) -> Ways:
        def drain(checker: Any = None) -> None:
            source = (item for item in items)  # costs as little as one can
            deque(split(source, checker=checker) if checker else source, maxlen=0)

        checkers = (first_chunk_checker, full_stream_checker)
        return {"bare": drain} | {each.__name__: partial(drain, each) for each in checkers}

    return {
        "split_stream": splits(tokens, lambda *args, **options: split_stream(*args, **options)[1]),
        "final_answers": splits(pairs, final_answers),
        "a message of all chunks": {
            "LangChain's sum": lambda: tokens[0] + tokens[1:],
            "message_from_stream": lambda: message_from_stream(tokens),
        },
    }


def rows(*, quick: bool) -> Iterator[Row]:
    """The ratio of each way to the bare one, and what a chunk costs in both."""
    count, rounds = (100, 1) if quick else (5_000, 11)
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
