"""Merging the chunks of a stream: tool calls, and messages to be stored, wherever it was cut."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END

from kit import StrictModel, loop, streamed
from langgraph_patch import with_patching
from langgraph_patch.errors import StreamError
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from langgraph_patch.streaming import UNFINISHED_KEY, merge_tool_call_chunks, message_from_stream
from support.streams import INPUT, LAST, call, say, think, weather
from support.streams import START as BEGUN

# --- tool calls ------------------------------------------------------------------------------


def pieces(*rows: tuple[Any, ...]) -> list[Any]:
    """Chunks of calls: index, id, name, arguments, and other keys."""
    return [
        {"index": index, "id": id_, "name": name, "args": args, **(more[0] if more else {})}
        for index, id_, name, args, *more in rows
    ]


MERGES: dict[str, tuple[list[Any], list[Any]]] = {
    "an id and a name that come late, or again": (
        pieces((0, None, "", "{"), (0, "c1", "a", "}"), (0, "c1", "a", None)),
        pieces((0, "c1", "a", "{}")),
    ),
    "no index: a name or another id begins a call": (
        pieces(
            *((None, "c1", "a", "1"), (None, None, None, "2"), (None, "c2", None, "3")),
            *((None, "c2", None, "4"), (None, "c2", "b", "5"), (None, "", "", "6")),
        ),
        pieces((None, "c1", "a", "12"), (None, "c2", None, "34"), (None, "c2", "b", "56")),
    ),
    "one id under two indexes stays two calls, in the order of the indexes": (
        pieces((1, "c1", "a", "{}"), (0, "c1", "b", "{}")),
        pieces((0, "c1", "b", "{}"), (1, "c1", "a", "{}")),
    ),
    "interleaved, sparse and index-less pieces; LangChain's indexes of v1 blocks are texts": (
        pieces(
            *(("lc_1", "c8", "f", ""), (7, "c7", "e", "x"), (2, "c2", "c", "")),
            *((7, None, None, "y"), (None, "c0", "b", "z"), (None, "", "a", None)),
        ),
        pieces(
            *((None, "c0", "b", "z"), (None, "", "a", None), (2, "c2", "c", "")),
            *((7, "c7", "e", "xy"), ("lc_1", "c8", "f", "")),
        ),
    ),
    "other keys are those of the first piece, the type is one": (
        pieces((0, "c1", "a", "", {"x": 1}), (0, None, None, "", {"x": 2, "type": "t"})),
        pieces((0, "c1", "a", "", {"x": 1, "type": "t"})),
    ),
}


@pytest.mark.parametrize("name", MERGES)
def test_the_chunks_of_a_stream_are_merged_by_the_rules(name):
    """One entry for each call, a copy; the chunks are not changed."""
    chunks, expected = MERGES[name]
    before = copy.deepcopy(chunks)
    merged = merge_tool_call_chunks(iter(chunks))
    assert merged == expected
    assert chunks == before
    assert not {id(each) for each in merged} & {id(each) for each in chunks}


@pytest.mark.parametrize("wrong", ["x", {"args": 7}, {"index": 1.5}, {"x": 300 * "y"}])
def test_what_is_no_tool_call_chunk_is_a_clear_error(wrong):
    """The value is quoted, and its form is named."""
    wrong = {"index": {}, **wrong} if isinstance(wrong, dict) else wrong
    with pytest.raises(StreamError, match=r"is not a tool call chunk\. Expected a dict") as raised:
        merge_tool_call_chunks([wrong])
    assert str(raised.value).startswith(repr(wrong)[:199])
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("function", [message_from_stream, merge_tool_call_chunks])
async def test_a_wrong_argument_is_a_clear_error(function):
    """A text, a message and an async stream; for that one the error says how to collect it."""

    async def stream() -> Any:
        yield BEGUN

    for wrong in ("text", BEGUN):
        with pytest.raises(StreamError, match=r"Expected (the|an iterable of) .*, got "):
            function(wrong)
    with pytest.raises(StreamError, match="is an async stream: collect it to a list first"):
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


def test_a_call_without_an_id_gets_a_derived_one():
    """The same chunks give the same ids; two calls of a message have two, other messages others."""

    def chunks(message_id: str) -> list[AIMessageChunk]:
        return [say(id=message_id), call("{}", name="a"), call('{"x', index=1, name="b")]

    message = message_from_stream(chunks("m1"))
    ids = [message.tool_calls[0]["id"], message.invalid_tool_calls[0]["id"]]
    assert ids[0] != ids[1]
    assert all(isinstance(each, str) and each.startswith("call_") for each in ids)
    assert message == message_from_stream(chunks("m1"))
    assert message_from_stream(chunks("m2")).tool_calls[0]["id"] not in ids


def test_a_piece_without_a_name_is_no_call_to_run():
    """Whatever its arguments are; a piece without anything is no call at all."""
    chunks = [call("{}", index=None, id="c1"), call("{}", index=3), call("", index=4)]
    assert listed(message_from_stream(chunks)) == ([], [(None, "{}"), (None, "{}")])
    for only in ({"id": "c1"}, {"name": "t"}):
        assert len(message_from_stream([call("", **only)]).invalid_tool_calls) == 1


def test_everything_but_the_calls_is_merged_as_langchain_does_it():
    """Text, reasoning, id, usage, metadata and extra keys are those of the sum of the chunks."""
    usage: Any = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    chunks = [
        say([], id="lc_run--1", response_metadata={"model_provider": "anthropic"}),
        *(think("h"), think("m")),
        say([{"type": "text", "text": "See", "index": 1}], id="msg_1"),
        say([{"type": "text", "text": ":", "index": 1}], usage_metadata=usage),
        *(call('{"n": ', index=1, id="c2", name="weather"), call("{}", id="c1", name="now")),
        *(call("2}", index=1), call('{"cut', index=2, id="c3", name="weather")),
        say([], additional_kwargs={"refusal": None}, response_metadata={"stop_reason": "end"}),
    ]
    before = copy.deepcopy(chunks)
    merged = chunks[0] + chunks[1:]
    message = message_from_stream(iter(chunks))
    assert listed(message) == ([("now", {}), ("weather", {"n": 2})], [("weather", '{"cut')])
    assert message.model_copy(update={"tool_calls": [], "invalid_tool_calls": []}) == AIMessage(
        merged.content,
        id="msg_1",
        usage_metadata=usage,
        response_metadata=merged.response_metadata,
        additional_kwargs={"refusal": None},
    )
    assert chunks == before


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
    with pytest.raises(StreamError, match=problem) as raised:
        message_from_stream(chunks)
    assert isinstance(raised.value.__cause__, TypeError) == ("merged" in problem)


# --- content blocks ------------------------------------------------------------------------------

PIECE = {"name": "t", "args": '{"a', "id": "c1", "index": 1}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
FUNCTION = {"type": "function_call", "call_id": "c1", "id": "fc_1", "name": "t"}
USE = {"type": "tool_use", "id": "c1", "name": "t"}
STANDARD_CALL = {"type": "tool_call", "id": "c1", "name": "t"}


@pytest.mark.parametrize(
    ("block", "settled"),
    [
        ({**USE, "input": {}, "partial_json": '{"a'}, {**USE, "input": {}}),
        ({**FUNCTION, "arguments": '{"a'}, {**FUNCTION, "arguments": "{}"}),
        ({**PIECE, "type": "tool_call_chunk"}, {**STANDARD_CALL, "index": 1, "args": {}}),
        ({**STANDARD_CALL, "args": {"a": None}}, {**STANDARD_CALL, "args": {}}),
    ],
)
def test_the_block_of_an_unfinished_call_keeps_its_place_with_empty_arguments(block, settled):
    """A block that repeats the cut text would be sent as it is, or refused."""
    chunk = AIMessageChunk([SIGNED, block], tool_call_chunks=[PIECE])
    message = message_from_stream([chunk])
    assert message.content == [SIGNED, settled]
    assert message.additional_kwargs == {}


FINISHED = {**USE, "input": {}, "partial_json": "{}"}


@pytest.mark.parametrize(
    ("block", "args", "expected"),
    [
        (FINISHED, "{}", FINISHED),
        (USE, None, {**USE, "input": {}}),  # Bedrock's integration raises without `input`
        ({**FINISHED, "id": "c2"}, "{}", {**FINISHED, "id": "c2"}),  # in the content only
    ],
)
def test_the_blocks_of_finished_calls_stay_as_langchain_leaves_them(block, args, expected):
    """Only a block without arguments gets them."""
    chunk = AIMessageChunk([block], tool_call_chunks=[{**PIECE, "args": args}])
    assert message_from_stream([chunk], ended=True).content == [expected]


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


@pytest.mark.parametrize(("text", "kept"), [("{}", True), ('{"a', False)])
def test_the_raw_copy_of_an_unfinished_call_goes(text, kept):
    """Mistral keeps one in `additional_kwargs`; that of finished calls stays."""
    raw = [{"id": "c1", "function": {"name": "t", "arguments": text}, "index": 0}]
    extra = {"tool_calls": raw, "x": 1}
    piece = {**PIECE, "args": text}
    chunk = AIMessageChunk("", additional_kwargs=extra, tool_call_chunks=[piece])
    assert message_from_stream([chunk]).additional_kwargs == (extra if kept else {"x": 1})


# --- a thread --------------------------------------------------------------------------------


def test_a_stream_that_was_cut_is_stored_and_the_thread_goes_on():
    """What arrived is in the thread, each call is answered, and nothing is run."""
    parts = [say("Let me see."), *streamed(("weather", '{"city": "Rome"}'), ("weather", '{"ci'))]
    model = StrictModel(script=[[*parts, ConnectionError("reset by peer")], AIMessage("Hello.")])
    graph = with_patching(loop(model, [weather]).compile(checkpointer=InMemorySaver()))
    thread: Any = {"configurable": {"thread_id": "1"}}
    stream = graph.stream(INPUT, thread, stream_mode="messages")
    chunks = [next(stream)[0] for _ in parts]
    with pytest.raises(ConnectionError, match="reset by peer"):
        next(stream)
    message = message_from_stream(chunks)
    assert listed(message) == ([("weather", {"city": "Rome"})], [("weather", '{"ci')])
    graph.update_state(thread, {"messages": [message]}, as_node="agent")
    graph.update_state(thread, None, as_node=END)  # no call of a cut turn is run
    assert graph.get_state(thread).next == ()
    assert graph.invoke({"messages": [HumanMessage("hello?")]}, thread)
    _, cut, *results, human, answer = graph.get_state(thread).values["messages"]
    assert (cut.text, human.text, answer.text) == ("Let me see.", "hello?", "Hello.")
    assert [m.tool_call_id for m in results] == ["c1", "c2"]
    assert all(PLACEHOLDER_KEY in m.additional_kwargs for m in results)
