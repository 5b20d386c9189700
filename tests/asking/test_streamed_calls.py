"""A call of a stream is complete or truncated: the judgement, and the corrected message."""

from langchain_core.messages import AIMessage, AIMessageChunk

from langgraph_patch.asking.streamed_calls import (
    StreamedCalls,
    drop_truncated,
    is_unusable,
    refuse_truncated,
)
from langgraph_patch.history.calls import STOPPED
from support.histories import call_of, invalid_of

MALFORMED = {"finish_reason": "MALFORMED_FUNCTION_CALL"}


INVALID = [invalid_of("{")]


def piece(args, index=0, name=None, call_id=None):
    """A chunk with a piece of a call."""
    call = {"name": name, "args": args, "id": call_id, "index": index}
    return AIMessageChunk("", tool_call_chunks=[call])


def begin(name, call_id, args="", index=0):
    """The first piece of a call."""
    return piece(args, index, name, call_id)


def reason(text):
    """The chunk with the reason for the end."""
    return AIMessageChunk("", response_metadata={"finish_reason": text})


def collected(*chunks):
    """The chunks of a run."""
    calls = StreamedCalls()
    for each in chunks:
        calls.add(each)
    return calls


def judged(*chunks, failed=False, correct=refuse_truncated):
    """The message of a stream, as LangChain merges it, corrected."""
    message = chunks[0].model_copy(deep=True)
    for each in chunks[1:]:
        message += each
    correct(message, collected(*chunks).calls(failed=failed))
    return message


def whole_calls(*ids):
    """One chunk with a whole call for each id, all of index 0."""
    parts = [{"name": "f", "args": '{"a": 1}', "id": each, "index": 0} for each in ids]
    return AIMessageChunk("", tool_call_chunks=parts)


LIMIT, ONE, TWO = reason("length"), begin("f", "c1"), begin("g", "c2", index=1)
COMPLETE = [
    [ONE, piece('{"a": 1}'), reason("whatever")],
    [ONE, piece('{"a": 1}'), LIMIT],
    [ONE, reason("finished")],
    [ONE, TWO, piece('{"a": 1}', 1), LIMIT],
    [begin("f", "c1", '{"a": 1}'), begin("g", "c2", '{"b": 2}')],
    *([whole_calls(*ids), reason("tool_calls")] for ids in ((None, None), ("", ""), ("c1", "c1"))),
    [ONE, TWO, piece('{"a"'), piece('{"b"', 1), piece(": 1}"), piece(": 2}", 1)],
]


def test_a_complete_call_is_never_refused():
    """However it is streamed, and whatever the reason for the end is."""
    for chunks in COMPLETE:
        names = [c["name"] for chunk in chunks for c in chunk.tool_call_chunks if c["name"]]
        calls = collected(*chunks).calls()
        assert [(call.name, call.args is None) for call in calls] == [(n, False) for n in names]
        merged = judged(*chunks)
        assert merged == judged(*chunks, correct=lambda *_: None)
        assert judged(*chunks, correct=drop_truncated) == merged


def test_chunks_that_were_not_reported_refuse_nothing():
    """Some integrations report texts only: what they made of the call is kept."""
    calls = collected(begin("f", "c1", '{"a": '))
    block = {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1, "b": 2}}
    message = AIMessage([block], tool_calls=[call_of("f", "c1", {"a": 1, "b": 2})])
    for correct in (refuse_truncated, drop_truncated):
        assert not correct(message, calls.calls())
        assert (len(message.tool_calls), message.content) == (1, [block])
    calls.is_judged = True
    assert calls.calls() == []
    listed = AIMessage("", tool_calls=[call_of("f", "c1")])
    assert not refuse_truncated(listed, collected(begin("f", "c1", "nope")).calls())


KEPT = [{"type": "text", "text": "x"}, {"type": "tool_use", "id": "c2", "name": "g", "input": {}}]
RAW = {"tool_calls": [{"id": "c1"}, {"id": "c2"}, "x"], "function_call": {"name": "f"}, "other": 1}
WHOLE = AIMessage(
    [
        {"type": "tool_use", "id": "c1", "input": {"a": 1}, "partial_json": "{"},
        {"type": "function_call", "call_id": "c1", "arguments": '{"a": 1'},
        {"type": "tool_call_chunk", "id": "c1", "args": '{"a": 1'},
        *KEPT,
    ],
    tool_calls=[call_of("f", "c1", {"a": 1}), call_of("g", "c2")],
    additional_kwargs=RAW,
)


def test_all_copies_of_a_truncated_call_are_corrected():
    """Or left out, where nothing would answer an invalid call."""
    chunks = [begin("f", "c1", '{"a": 1'), begin("g", "c2", "{}", 1)]
    message, dropped = WHOLE.model_copy(), WHOLE.model_copy()
    assert refuse_truncated(message, collected(*chunks).calls())
    assert message.content == [
        {"type": "tool_use", "id": "c1", "input": {}},
        {"type": "function_call", "call_id": "c1", "arguments": "{}"},
        {"type": "tool_call", "id": "c1", "args": {}},
        *KEPT,
    ]
    assert message.additional_kwargs == {"tool_calls": [{"id": "c2"}, "x"], "other": 1}
    assert message.tool_calls == [call_of("g", "c2")]
    assert message.invalid_tool_calls == [invalid_of('{"a": 1', "c1", "f", STOPPED)]
    assert drop_truncated(dropped, collected(*chunks).calls())
    assert (dropped.content, dropped.invalid_tool_calls) == (KEPT, [])
    assert dropped.tool_calls == [call_of("g", "c2")]
    assert not drop_truncated(dropped, [])
    assert [chunk["id"] for chunk in judged(*chunks).tool_call_chunks] == ["c2"]
    message = judged(begin("f", "c0", '{"a": 1}'), begin("f", "c0", '{"a": 2', index=1))
    assert message.tool_calls == [call_of("f", "c0", {"a": 1})]
    assert message.invalid_tool_calls == [invalid_of('{"a": 2', "c0", "f", STOPPED)]
    found = AIMessage("", invalid_tool_calls=[invalid_of("{", "c1"), invalid_of("{", "c2")])
    assert drop_truncated(found, collected(begin("f", "c1", "nope")).calls())
    assert [call["id"] for call in found.invalid_tool_calls] == ["c2"]
    wrapped = AIMessage([{"type": "non_standard", "value": WHOLE.content[0]}, TEXT])
    wrapped.tool_calls = [call_of("f", "c1", {"a": 1})]
    assert drop_truncated(wrapped, collected(*chunks).calls())
    assert wrapped.content == [TEXT]


USE = {"type": "tool_use", "id": "c2", "name": "wire", "input": {"to": "Zoë"}}
TEXT = {"type": "text", "text": "sent"}
GEMINI = {"finish_reason": "MAX_TOKENS"}


def limited(content="", **fields):
    """A message with two calls that ended at the token limit."""
    calls = [call_of("mail", "c1"), call_of("wire", "c2", {"to": "Zoë"})]
    metadata = fields.pop("metadata", {"stop_reason": "max_tokens"})
    return AIMessage(content, tool_calls=calls, response_metadata=metadata, **fields)


AT_LIMIT = [
    (limited([TEXT, USE]), False, True),
    (limited([USE, {"type": "text", "text": ""}]), False, True),
    (limited([USE], metadata={"stopReason": "max_tokens"}), False, True),
    (limited(metadata={"stop_reason": "model_context_window_exceeded"}), False, True),
    (limited([{**USE, "partial_json": '{"to": "Zoë"'}]), False, True),
    (limited(metadata={**GEMINI, "model_provider": "google_genai"}), True, True),
    (limited(metadata={**GEMINI, "model_provider": "openai"}), True, False),
    (limited(metadata={"finish_reason": "length"}), False, False),
    (limited([USE, TEXT]), False, False),
    (limited([USE, {"type": "thinking", "thinking": "hm"}]), False, False),
    (limited([USE]), True, False),
    (limited(invalid_tool_calls=[invalid_of("{")]), False, False),
    (AIMessage("x", response_metadata={"stop_reason": "max_tokens"}), False, False),
]


def test_the_last_call_of_a_message_that_ended_at_the_limit():
    """It may lack keys, if its arguments came as an object and nothing follows it.

    Its text is what the model wrote, not escaped.
    """
    for message, streamed, is_cut in AT_LIMIT:
        run = StreamedCalls()
        run.is_streamed = streamed
        calls = run.calls(message)
        found = [(call.id, call.raw) for call in calls if call.args is None]
        assert found == [("c2", '{"to": "Zoë"')] * is_cut, message
        assert [call.id for call in calls] == ["c1", "c2"] * is_cut
        assert refuse_truncated(message.model_copy(), calls) is is_cut


def test_text_behind_the_streamed_calls_ends_them():
    """Then the limit cut the text; an empty text is none."""
    message = limited(metadata=GEMINI)
    begun = begin("wire", "c2", '{"to": "Zoë"}')
    assert all(call.args for call in collected(begun, AIMessageChunk("so")).calls(message))
    again = collected(begun, AIMessageChunk("so"), begin("mail", "c3", "{}", 1))
    for run in (collected(begun, AIMessageChunk("")), collected(AIMessageChunk("a"), begun), again):
        assert run.calls(message)[-1].args is None


def test_which_messages_are_asked_for_again():
    """Those with neither a call that can run nor an answer; text before a call announces it."""
    for message, expected in (
        (AIMessage([TEXT, USE], invalid_tool_calls=INVALID), True),
        (AIMessage([USE, TEXT], invalid_tool_calls=INVALID), False),
        (AIMessage("", tool_calls=[call_of("f", "c1")], invalid_tool_calls=INVALID), False),
        (AIMessage("", response_metadata=MALFORMED), True),
        (AIMessage("", response_metadata={"stopReason": "malformed_tool_use"}), True),
        (AIMessage("hi", response_metadata=MALFORMED), False),
        (AIMessage(""), False),
    ):
        assert is_unusable(message) is expected, message
