"""Merging the chunks of a stream: tool calls, and messages to be stored, wherever it was cut."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk

from langgraph_patch.errors import MessagesError
from langgraph_patch.streaming import UNFINISHED_KEY, merge_tool_call_chunks, message_from_stream
from support.streams import LAST, call, say
from support.streams import START as BEGUN

# --- tool calls ------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["x", {"args": 7}, {"index": 1.5}, {"x": 300 * "y"}])
def test_what_is_no_tool_call_chunk_is_a_clear_error(wrong):
    """The value is quoted, and its form is named."""
    wrong = {"index": {}, **wrong} if isinstance(wrong, dict) else wrong
    with pytest.raises(
        MessagesError, match=r"is not a tool call chunk\. Expected a dict"
    ) as raised:
        merge_tool_call_chunks([wrong])
    assert str(raised.value).startswith(repr(wrong)[:199])
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("function", [message_from_stream, merge_tool_call_chunks])
async def test_a_wrong_argument_is_a_clear_error(function):
    """A text, a message and an async stream; for that one the error says how to collect it."""

    async def stream() -> Any:
        yield BEGUN

    for wrong in ("text", BEGUN):
        with pytest.raises(MessagesError, match=r"Expected (the|an iterable of) .*, got "):
            function(wrong)
    with pytest.raises(MessagesError, match="is an async stream: collect it to a list first"):
        function(stream())


# --- the calls of a message --------------------------------------------------------------------


def listed(message: AIMessage) -> tuple[list[Any], list[Any]]:
    """The calls of a message: (name, args) of the valid ones, (name, raw text) of the others."""
    return (
        [(c["name"], c["args"]) for c in message.tool_calls],
        [(c["name"], c["args"]) for c in message.invalid_tool_calls],
    )


@pytest.mark.parametrize(
    ("raw", "args"),
    [
        (' {"q": 1}\n', {"q": 1}),
        ("{}", {}),
        ('{"q": "wea', None),
        ('{"q": 1}}', None),
        ("[1]", None),
        ("  ", None),
        ('{"q": "a\nb"}', {"q": "a\nb"}),  # a raw newline: LangChain's parser takes it too
        ('{"q": ' + "[" * 100_000, None),
    ],
)
def test_only_a_complete_json_object_makes_a_call(raw, args):
    """LangChain completes cut-off arguments; here the raw text must be whole, ended or not."""
    for ended in (True, False):
        message = message_from_stream([call(raw, id="c1", name="t")], ended=ended)
        assert listed(message) == (([("t", args)], []) if args is not None else ([], [("t", raw)]))
    error = "The tool call has no name, or its arguments are not a complete JSON object."
    assert {each["error"] for each in message.invalid_tool_calls} <= {error}


def reason(key: str, value: Any, **fields: Any) -> AIMessageChunk:
    """The chunk with the reason for the end."""
    return say(response_metadata={key: value}, **fields)


ENDS = [
    *(("finish_reason", each) for each in ("stop", "STOP", "eos", "eos_token", "stopstop")),
    *(("finish_reason", each) for each in ("tool_calls", "function_call", "COMPLETE")),  # Cohere
    *(("stop_reason", each) for each in ("end_turn", "stop_sequence", "tool_use")),
    *(("done_reason", "stop"), ("stopReason", "tool_use"), ("status", "completed")),
]
"""Reasons for which a model ends by itself, as integrations store them."""

CUTS = [
    *(("stop_reason", "max_tokens"), ("stopReason", "malformed_tool_use"), ("done_reason", "load")),
    *(("finish_reason", "length"), ("finish_reason", "of_tomorrow"), ("status", "incomplete")),
    ("stop_reason", "pause_turn"),
]
"""Reasons that say, or may say, that it was stopped: each but those above."""


FINISHES: list[tuple[list[AIMessageChunk], bool]] = [
    ([], False),
    ([LAST], True),
    *(([reason(*each)], True) for each in ENDS),
    *(([reason(*each), LAST], False) for each in CUTS),
    ([reason("finish_reason", "stop"), reason("finish_reason", "length")], False),
    ([reason("finish_reason", None), LAST], True),
    ([reason("model_provider", "openai"), LAST], False),
    ([reason("model_provider", "openai"), reason("finish_reason", "stop")], True),
]


def test_empty_arguments_are_those_of_a_call_only_if_the_model_had_finished():
    """The provider's reason counts; `last` alone only where no provider is named."""
    for end, ended in FINISHES:
        chunks = [BEGUN, call(None), *end]
        for given_end, finished in ((None, ended), (True, True), (False, False)):
            message = message_from_stream(chunks, ended=given_end)
            expected = ([("weather", {})], []) if finished else ([], [("weather", "")])
            assert listed(message) == expected, end


def test_a_piece_without_a_name_is_no_call_to_run():
    """Whatever its arguments are; a piece without anything is no call at all."""
    chunks = [call("{}", index=None, id="c1"), call("{}", index=3), call("", index=4)]
    assert listed(message_from_stream(chunks)) == ([], [(None, "{}"), (None, "{}")])
    for only in ({"id": "c1"}, {"name": "t"}):
        assert len(message_from_stream([call("", **only)]).invalid_tool_calls) == 1


def test_what_is_not_streamed_and_what_is_empty():
    """A whole message is returned as it is; of no chunks, or empty ones, comes an empty one."""
    whole = AIMessage("Hi.", id="1", tool_calls=[{"name": "t", "args": {}, "id": "c1"}])
    assert message_from_stream([whole]) is whole
    assert message_from_stream([]) == AIMessage("")
    assert message_from_stream([say([], id="1"), say([])]) == AIMessage("", id="1")


@pytest.mark.parametrize(
    ("chunks", "problem"),
    [
        ([say("a"), AIMessage("whole")], r"one whole AIMessage and nothing else; got AIMessage\("),
        ([AIMessage("whole"), say("a")], r"got AIMessage\("),
        ([300 * "x"], "got 'x{198}…[.]"),
        ([call("", id="c1", name="get_"), call("", name="weather")], "names: 'get_' and 'weather'"),
        (
            [say(id="1", response_metadata={"x": 1}), say(response_metadata={"x": "1"})],
            "The chunks of the message '1' cannot be merged: .* Expected the chunks of one message",
        ),
    ],
)
def test_what_are_not_the_chunks_of_one_message_is_a_clear_error(chunks, problem):
    """The first value that does not fit is quoted; an error of LangChain's is the cause."""
    with pytest.raises(MessagesError, match=problem) as raised:
        message_from_stream(chunks)
    assert isinstance(raised.value.__cause__, TypeError) == ("merged" in problem)


# --- content blocks ------------------------------------------------------------------------------

PIECE = {"name": "t", "args": '{"a', "id": "c1", "index": 1}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
USE = {"type": "tool_use", "id": "c1", "name": "t"}


THOUGHT = {"type": "thinking", "thinking": "hm"}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
REMOTE = {"type": "mcp_tool_use", "id": "s2", "name": "search", "input": {}}
STANDARD = {"type": "server_tool_call", "id": "s3", "name": "search", "args": {}}
WORDS = {"type": "text", "text": "See:"}
FRAGMENT = {"type": "input_json_delta", "partial_json": "{", "index": 4}
NAMELESS = {"type": "tool_use", "input": "{", "id": None}


@pytest.mark.parametrize(
    ("content", "kept", "unfinished"),
    [
        ([WORDS, THOUGHT, SIGNED], [WORDS], [THOUGHT, SIGNED]),
        ([THOUGHT, WORDS], [THOUGHT, WORDS], []),
        ([WORDS, SEARCH, REMOTE, STANDARD], [WORDS], [SEARCH, REMOTE, STANDARD]),
        ([THOUGHT, SEARCH], "", [THOUGHT, SEARCH]),
        ([SEARCH, FOUND], [SEARCH, FOUND], []),
        ([WORDS, FRAGMENT], [WORDS], [FRAGMENT]),
        ([WORDS, NAMELESS], [WORDS], [NAMELESS]),
        (["plain", THOUGHT], ["plain"], [THOUGHT]),
    ],
)
def test_what_a_cut_left_open_leaves_the_content_and_is_kept(content, kept, unfinished):
    """Reasoning that nothing follows, a search without its result, a piece without a start."""
    message = message_from_stream([AIMessageChunk(content)])
    assert message.content == kept
    aside = {"langgraph_patch_unfinished": unfinished} if unfinished else {}
    assert message.additional_kwargs == aside


@pytest.mark.parametrize("pause", ["pause_turn", "refusal"])
def test_a_pause_leaves_the_call_of_a_server_open(pause):
    """Claude pauses to be called again with its own output; that finishes no other call."""
    end = say([], response_metadata={"stop_reason": pause}, chunk_position="last")
    chunks = [say([SEARCH]), BEGUN, call(None), end]
    message = message_from_stream(chunks)
    assert listed(message) == ([], [("weather", "")])
    assert message.content == ([SEARCH] if pause == "pause_turn" else "")
    assert message_from_stream(chunks, ended=False).content == ""


def test_reasoning_that_is_not_open_stays():
    """The stream had ended, or the calls that it was thought for stand outside the content."""
    assert message_from_stream([AIMessageChunk([THOUGHT])], ended=True).content == [THOUGHT]
    called = AIMessageChunk([THOUGHT], tool_call_chunks=[PIECE])
    assert message_from_stream([called]).content == [THOUGHT]
    both = AIMessageChunk([USE, THOUGHT], tool_call_chunks=[PIECE])
    assert message_from_stream([both]).additional_kwargs == {UNFINISHED_KEY: [THOUGHT]}
