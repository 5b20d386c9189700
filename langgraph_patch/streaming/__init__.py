"""Streams: show final answers while they arrive, and keep what arrived before a cut.

    final_answers           the tokens of final answers from a graph's stream
    FinalAnswers            the same as a transformer of a graph's v3 stream
    split_stream            find out whether a turn calls tools, and keep its chunks
    message_from_stream     a message from the chunks that arrived, to be stored
    merge_tool_call_chunks  the tool calls of a stream from their chunks

`afinal_answers` and `asplit_stream` do the same for async streams. A checker decides when a turn
is known to be an answer: see `langgraph_patch.streaming.checkers`. Import public names from this
package, not from its modules.
"""

import typing

from langgraph_patch.streaming.adaptive import AdaptiveChecker, ModelStats, adaptive_checker
from langgraph_patch.streaming.answer_filter import RETRACTED_KEY
from langgraph_patch.streaming.call_chunks import merge_tool_call_chunks
from langgraph_patch.streaming.checkers import (
    Checker,
    Turn,
    first_chunk_checker,
    full_stream_checker,
    live_checker,
)
from langgraph_patch.streaming.final_answers import afinal_answers, final_answers
from langgraph_patch.streaming.merge import UNFINISHED_KEY, message_from_stream
from langgraph_patch.streaming.split import AsyncChunks, Chunks, asplit_stream, split_stream

if typing.TYPE_CHECKING:
    from langgraph_patch.streaming.transformer import FinalAnswers

__all__ = [
    "RETRACTED_KEY",
    "UNFINISHED_KEY",
    "AdaptiveChecker",
    "AsyncChunks",
    "Checker",
    "Chunks",
    "FinalAnswers",
    "ModelStats",
    "Turn",
    "adaptive_checker",
    "afinal_answers",
    "asplit_stream",
    "final_answers",
    "first_chunk_checker",
    "full_stream_checker",
    "live_checker",
    "merge_tool_call_chunks",
    "message_from_stream",
    "split_stream",
]


def __getattr__(name: str) -> typing.Any:
    """Import `FinalAnswers` when it is used: the v3 stream of LangGraph takes time to import."""
    if name == "FinalAnswers":
        from langgraph_patch.streaming.transformer import FinalAnswers  # noqa: PLC0415

        return FinalAnswers
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
