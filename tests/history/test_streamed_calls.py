"""A call of a stream is complete or truncated: the judgement, chunk by chunk."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk

from langgraph_patch.history.streamed_calls import StreamedCalls, refuse_truncated
from support.chunk_model import begin, piece, reason


def judged(*chunks: AIMessageChunk, failed: bool = False) -> AIMessageChunk:
    """The message of a stream, as LangChain merges it, corrected."""
    calls = StreamedCalls()
    for chunk in chunks:
        calls.add(chunk)
    message = chunks[0].model_copy(deep=True)
    for chunk in chunks[1:]:
        message += chunk
    refuse_truncated(message, calls.calls(failed=failed))
    return message


COMPLETE_STREAMS = {
    "no reason": [begin("f", "c1"), piece('{"a": '), piece("1}")],
    "a reason that is not known": [begin("f", "c1"), piece('{"a": 1}'), reason("whatever")],
    "the limit, reached behind the call": [begin("f", "c1"), piece('{"a": 1}'), reason("length")],
    "no arguments, no reason": [begin("f", "c1")],
    "no arguments, an unknown reason": [begin("f", "c1"), reason("finished")],
    "no arguments, then another call": [
        begin("f", "c1"),
        begin("g", "c2", index=1),
        piece('{"a": 1}', 1),
        reason("length"),
    ],
    "an empty object": [begin("f", "c1", "{}"), reason("length")],
    "two calls, one index": [begin("f", "c1", '{"a": 1}'), begin("g", "c2", '{"b": 2}')],
    "one id twice": [begin("f", "c0", '{"a": 1}'), begin("f", "c0", '{"a": 2}', index=1)],
    "no index": [begin("f", "c1", '{"a": 1}', index=None), begin("g", "c2", "{}", index=None)],
    "no id": [piece('{"a": 1}', name="f")],
    "pieces in turns": [
        begin("f", "c1"),
        begin("g", "c2", index=1),
        piece('{"a"'),
        piece('{"b"', 1),
        piece(": 1}"),
        piece(": 2}", 1),
    ],
    "raw newlines": [begin("f", "c1", '{"a": "x\ny"}')],
}


@pytest.mark.parametrize("name", COMPLETE_STREAMS)
def test_a_complete_call_is_never_refused(name):
    """A complete call is never refused."""
    chunks = COMPLETE_STREAMS[name]
    message = judged(*chunks)
    assert not message.invalid_tool_calls
    assert len(message.tool_calls) == sum(
        c["name"] is not None for k in chunks for c in k.tool_call_chunks
    )


def test_every_cut_is_seen():
    """Wherever the text of the arguments ends."""
    text = '{"city": "Zürich", "days": [1, {"x": "\\"}"}]}'
    for end in range(len(text)):
        message = judged(begin("f", "c1"), piece(text[:end] or None), reason("max_tokens"))
        assert not message.tool_calls
        assert message.invalid_tool_calls[0]["args"] in (text[:end], None)


def test_empty_arguments_of_the_last_call():
    """Empty arguments of the last call."""
    assert not judged(begin("f", "c1"), reason("length")).tool_calls
    assert not judged(begin("f", "c1"), failed=True).tool_calls
    assert judged(begin("f", "c1")).tool_calls


def test_one_id_for_a_complete_and_a_truncated_call():
    """One id for a complete and a truncated call."""
    message = judged(begin("f", "c0", '{"a": 1}'), begin("f", "c0", '{"a": 2', index=1))
    assert [call["args"] for call in message.tool_calls] == [{"a": 1}]
    assert [call["args"] for call in message.invalid_tool_calls] == ['{"a": 2']


def test_chunks_that_were_not_reported_refuse_nothing():
    """Some integrations report texts only: what they made of the call is kept."""
    calls = StreamedCalls()
    calls.add(begin("f", "c1", '{"a": '))
    message = AIMessage("", tool_calls=[{"name": "f", "args": {"a": 1, "b": 2}, "id": "c1"}])
    assert not refuse_truncated(message, calls.calls())
    assert message.tool_calls


def test_all_copies_of_a_truncated_call_are_corrected():
    """All copies of a truncated call are corrected."""
    calls = StreamedCalls()
    calls.add(begin("f", "c1", '{"a": 1'))
    message = AIMessage(
        [
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}, "partial_json": "{"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1'},
            {"type": "text", "text": "x"},
        ],
        tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c1"}],
        additional_kwargs={"tool_calls": [{"id": "c1"}, {"id": "c2"}]},
    )
    assert refuse_truncated(message, calls.calls())
    assert message.content == [
        {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "text", "text": "x"},
    ]
    assert message.additional_kwargs == {"tool_calls": [{"id": "c2"}]}
    assert (message.tool_calls, len(message.invalid_tool_calls)) == ([], 1)
