"""Read streams: open one, read the items of a graph's stream, pass items on.

The items of a stream have these shapes:

| stream | shape of an item |
|---|---|
| `stream_mode="messages"` | `(message, metadata)` |
| a list of modes | `(mode, data)` |
| `subgraphs=True` | `(namespace, data)` or `(namespace, mode, data)` |
| `version="v2"` | `{"type": mode, "ns": namespace, "data": data}` |
| `RemoteGraph` | as above, with dicts as messages |
| the SDK's `runs.stream` | `StreamPart(event, data)`, the mode as event, perhaps `mode|namespace` |
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any, Protocol, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, messages_from_dict
from langchain_core.runnables import Runnable
from langgraph.checkpoint.serde.types import INTERRUPT

from langgraph_patch._text import short
from langgraph_patch.errors import MessagesError

_EXPECTED_ITEM = (
    "Expected what graph.stream(..., stream_mode='messages') yields, or the same with a list of "
    "modes that contains it"
)

Token: TypeAlias = tuple[BaseMessage, dict[str, Any]]
"""A message, or a chunk of one, and its metadata."""


# --- opening -------------------------------------------------------------------------------


def open_stream(stream: Any, *, expected: str, remedy: str, asynchronous: bool = False) -> Any:
    """An iterator over the stream that a caller passes.

    Args:
        stream: What the caller passed.
        expected: What the function expects, for the error message.
        remedy: What to do with a stream of the other kind, for the error message.
        asynchronous: Whether it must be an async stream, and becomes an async iterator.
            Default: False.

    Raises:
        MessagesError: If `stream` is anything else.
    """
    is_value = isinstance(stream, str | bytes | Mapping | BaseMessage)
    is_sync, is_async = hasattr(stream, "__iter__") and not is_value, hasattr(stream, "__aiter__")
    if is_async if asynchronous else is_sync:
        return aiter(stream) if asynchronous else iter(stream)
    if is_sync or is_async:
        kind = "a sync stream" if is_sync else "an async stream"
        raise MessagesError(f"{short(stream)} is {kind}: {remedy}.")
    hint = " Await the coroutine first." if isinstance(stream, Awaitable) else ""
    if isinstance(stream, Runnable):
        hint = f" Pass what its {'astream' if asynchronous else 'stream'}(...) returns."
    raise MessagesError(f"Expected {expected}, got {short(stream)}.{hint}")


# --- the items of a stream -----------------------------------------------------------------


def mode_and_data(item: Any) -> tuple[str, Any]:
    """The mode of an item, and what the graph streamed in that mode."""
    if hasattr(item, "event") and hasattr(item, "data"):
        return str(item.event).partition("|")[0], item.data
    match item:
        case {"type": str() as mode, "ns": _, "data": data}:
            return mode, data
        case (tuple(), str() as mode, data) | (str() as mode, data):
            return mode, data
        case (tuple(), data):
            return "messages", data
    return "messages", item


def graph_of(item: Any) -> str:
    """The namespace of the graph that an item of the mode `values` comes from, as a text."""
    match item:
        case {"ns": namespace} | (tuple() as namespace, _, _):
            return str(namespace)
    return str(getattr(item, "event", ""))


def token_of(pair: object, item: object) -> Token:
    """The message and its metadata, from what the mode `messages` gives for each."""
    problem: Exception | None = None
    match pair:
        case (BaseMessage() as message, dict() as metadata):
            return message, metadata
        case ({"type": str(kind)} as fields, dict() as metadata):
            try:
                return messages_from_dict([{"type": kind, "data": fields}])[0], metadata
            except (ValueError, KeyError, TypeError) as error:  # of LangChain's classes
                problem = error
    raise MessagesError(f"{_EXPECTED_ITEM}; got {short(item)}.") from problem


def model_messages(value: object) -> int:
    """How many messages of models a state has, or what nodes wrote to it."""
    if isinstance(value, BaseMessage):
        return isinstance(value, AIMessage)
    if isinstance(value, Mapping):
        if isinstance(value.get("type"), str) and "content" in value:  # of a server
            return value["type"] in ("ai", "AIMessageChunk")
        return sum(map(model_messages, value.values()))
    return sum(map(model_messages, value)) if isinstance(value, list) else 0


def shows_pause(mode: str, data: object, item: object) -> bool:
    """Whether an item shows that the run has paused for a human."""
    if isinstance(item, dict) and item.get("interrupts"):
        return True
    return mode in ("updates", "values") and isinstance(data, dict) and bool(data.get(INTERRUPT))


# --- one pipeline for sync and async streams -----------------------------------------------


class Pipeline(Protocol):
    """What is passed on of a stream."""

    def add(self, item: Any) -> Iterable[Any]:
        """What is passed on after the next item."""

    def finish(self, *, failed: bool) -> Iterable[Any]:
        """What is passed on at the end of the stream, or before the error that it `failed` with."""


def pass_on(source: Iterator[Any], pipeline: Pipeline) -> Generator[Any]:
    """Yield what the pipeline passes on of a stream, then raise its error; close it at the end."""
    try:
        while True:
            try:
                item = next(source)
            except Exception as end:  # any: what is held comes before the error
                has_ended = isinstance(end, StopIteration)
                yield from pipeline.finish(failed=not has_ended)
                if has_ended:
                    return
                raise
            yield from pipeline.add(item)
    finally:
        if (close := getattr(source, "close", None)) is not None:
            close()


async def apass_on(source: AsyncIterator[Any], pipeline: Pipeline) -> AsyncGenerator[Any]:
    """Do the same with an async stream."""
    try:
        while True:
            try:
                item = await anext(source)
            except Exception as end:  # any: what is held comes before the error
                has_ended = isinstance(end, StopAsyncIteration)
                for passed in pipeline.finish(failed=not has_ended):
                    yield passed
                if has_ended:
                    return
                raise
            for passed in pipeline.add(item):
                yield passed
    finally:
        if (aclose := getattr(source, "aclose", None)) is not None:
            await aclose()
