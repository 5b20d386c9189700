"""Streams: does this turn call tools, and what if the stream is cut?

    split_stream            decide, then read on as if nothing had been read
    final_answers           of a graph's token stream, the tokens of final answers only
    message_from_stream     a message out of what arrived before a cut
    merge_tool_call_chunks  the calls that the pieces of a stream make

The `a...` twins do the same for async streams. Everything public of this subject is
imported from here.
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
