"""Streams: show final answers while they arrive, and keep what arrived before a cut.

    final_answers           the tokens of final answers from a graph's stream
    split_stream            find out whether a model calls tools, and keep its chunks
    message_from_stream     a message from the chunks that arrived, to be stored
    merge_tool_call_chunks  the tool calls of a stream from their chunks

`afinal_answers` and `asplit_stream` do the same for async streams. A checker decides when a
message is known to be an answer: see `langgraph_patch.streaming.checkers`. Import public names
from this package, not from its modules.
"""

from langgraph_patch.streaming.answers import RETRACTED_KEY, afinal_answers, final_answers
from langgraph_patch.streaming.checkers import (
    Checker,
    Turn,
    asplit_stream,
    first_chunk_checker,
    full_stream_checker,
    split_stream,
)
from langgraph_patch.streaming.message import (
    UNFINISHED_KEY,
    merge_tool_call_chunks,
    message_from_stream,
)

__all__ = [
    "RETRACTED_KEY",
    "UNFINISHED_KEY",
    "Checker",
    "Turn",
    "afinal_answers",
    "asplit_stream",
    "final_answers",
    "first_chunk_checker",
    "full_stream_checker",
    "merge_tool_call_chunks",
    "message_from_stream",
    "split_stream",
]
