"""Streams: show final answers while they arrive, and keep what arrived before a cut.

    split_stream            find out whether a turn calls tools, and keep its chunks
    final_answers           the tokens of final answers from a graph's message stream
    message_from_stream     a message from the chunks that arrived, to be stored
    merge_tool_call_chunks  the tool calls of a stream from their chunks

`asplit_stream` and `afinal_answers` do the same for async streams. Import public names from
this package, not from its modules.
"""

from langgraph_patch.streaming.checkers import (
    AdaptiveChecker,
    Checker,
    ModelStats,
    Turn,
    adaptive_checker,
    first_chunk_checker,
    full_stream_checker,
)
from langgraph_patch.streaming.final_answers import afinal_answers, final_answers
from langgraph_patch.streaming.merge import (
    UNFINISHED_KEY,
    merge_tool_call_chunks,
    message_from_stream,
)
from langgraph_patch.streaming.split import AsyncChunks, Chunks, asplit_stream, split_stream

__all__ = [
    "UNFINISHED_KEY",
    "AdaptiveChecker",
    "AsyncChunks",
    "Checker",
    "Chunks",
    "ModelStats",
    "Turn",
    "adaptive_checker",
    "afinal_answers",
    "asplit_stream",
    "final_answers",
    "first_chunk_checker",
    "full_stream_checker",
    "merge_tool_call_chunks",
    "message_from_stream",
    "split_stream",
]
