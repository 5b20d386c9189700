"""Merging the chunks of a stream: tool calls, and messages to be stored, wherever it was cut."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.messages.ai import add_ai_message_chunks
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, MessagesState, StateGraph
from langgraph.graph import START as BEGIN
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from langgraph_patch import with_patching
from langgraph_patch.errors import StreamError
from langgraph_patch.history.calls import complete_args
from langgraph_patch.history.patch import patch_messages, validate_messages
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY, is_placeholder
from langgraph_patch.history.streamed_calls import group_call_chunks
from langgraph_patch.streaming import (
    UNFINISHED_KEY,
    merge_tool_call_chunks,
    message_from_stream,
    split_stream,
)
from support.answer_agents import INPUT, by_hand, weather
from support.chunk_model import ChunkModel
from support.paced_servers import INTEGRATIONS, WITH_BLOCKS, paced
from support.streams import LAST, START, call, say, think
from support.wires import WIRES, refusals

# --- tool calls ------------------------------------------------------------------------------

pieces = st.lists(
    st.builds(
        lambda name, args, id_, index, more: {
            "name": name,
            "args": args,
            "id": id_,
            "index": index,
            **more,
        },
        st.sampled_from([None, None, "", "weather", "weather", "now"]),
        st.sampled_from([None, "", "{", '"a": 1', "}", "[", "ü"]),
        st.sampled_from([None, None, "", "c1", "c1", "c2"]),
        st.sampled_from([None, 0, 1, 2, 7]),
        st.sampled_from([{}, {"type": "a"}, {"type": "b"}, {"extras": 1}, {"extras": 2}]),
    ),
    max_size=6,
)


@pytest.mark.slow
def test_the_merge_obeys_its_rules():
    """Each rule, checked on input and output.

    Every chunk belongs to one call, in its order; a call has one index and one id; a chunk
    begins a call only if there is none to continue, or its id is another one; a name without an
    index begins a call; the arguments are joined, and nothing else is.
    """
    outcomes = {True: 0, False: 0}

    @settings(max_examples=3000, deadline=None, derandomize=True)
    @given(pieces)
    def rules(chunks: list[Any]) -> None:
        before = copy.deepcopy(chunks)
        groups = group_call_chunks(chunks)
        assert sorted(id(c) for group in groups for c in group) == sorted(map(id, chunks))
        order = {id(chunk): place for place, chunk in enumerate(chunks)}
        assert [order[id(group[0])] for group in groups] == sorted(
            order[id(group[0])] for group in groups
        )
        for group in groups:
            assert [order[id(c)] for c in group] == sorted(order[id(c)] for c in group)
            assert len({c["index"] for c in group} - {None}) <= 1
            assert len({c["id"] for c in group if c["id"]}) <= 1
            assert not any(c["name"] and c["index"] is None for c in group[1:])
        for group in groups[1:]:
            first = group[0]
            if first["index"] is None:
                assert first["name"] or first["id"]
            elif any(c["index"] == first["index"] for c in chunks[: order[id(first)]]):
                assert first["id"]
        names = [{c[key] for c in g if c.get(key)} for g in groups for key in ("name", "type")]
        conflict = any(len(values) > 1 for values in names)
        outcomes[conflict] += 1
        if conflict:
            with pytest.raises(StreamError, match=r"have different (name|type)s: "):
                merge_tool_call_chunks(chunks)
        else:
            merged = merge_tool_call_chunks(chunks)
            texts = ["".join(c["args"] or "" for c in group) for group in groups]
            assert sorted(each["args"] or "" for each in merged) == sorted(texts)
            assert len(merged) == len(groups)
            places = [each["index"] for each in merged]
            assert places == sorted(places, key=lambda index: -1 if index is None else index)
        assert chunks == before

    rules()
    assert min(outcomes.values()) > 300


def test_a_new_id_begins_a_call_under_a_known_index():
    """Servers that send index 0 for every call; later pieces continue the newest one."""
    chunks = [
        *call('{"a": ', index=0, id="c1", name="a").tool_call_chunks,
        *call("1}", index=0).tool_call_chunks,
        *call("{", index=0, id="c2", name="b").tool_call_chunks,
        *call("}", index=0, id="c2", name="b").tool_call_chunks,
    ]
    merged = merge_tool_call_chunks(chunks)
    assert [(c["id"], c["name"], c["args"]) for c in merged] == [
        ("c1", "a", '{"a": 1}'),
        ("c2", "b", "{}"),
    ]


def test_pieces_without_index_id_and_name_continue_the_newest_call():
    """Some servers send no index; an id that is repeated continues its call, too."""
    chunks = [
        *call("{", index=None, id="c1", name="a").tool_call_chunks,
        *call("}", index=None).tool_call_chunks,
        *call("{", index=None, id="c2", name="b").tool_call_chunks,
        *call("}", index=None, id="c2").tool_call_chunks,
        *call("{}", index=None, id="c2", name="b").tool_call_chunks,
    ]
    merged = merge_tool_call_chunks(chunks)
    assert [(c["id"], c["args"]) for c in merged] == [("c1", "{}"), ("c2", "{}"), ("c2", "{}")]


def test_a_call_without_an_id_gets_a_derived_one():
    """The same chunks give the same ids; two calls of a message have two."""
    chunks = [
        say(id="m1"),
        call("{}", index=0, name="a").model_copy(update={"id": "m1"}),
        call('{"x', index=1, name="b").model_copy(update={"id": "m1"}),
    ]
    message, again = message_from_stream(chunks), message_from_stream(chunks)
    ids = [message.tool_calls[0]["id"], message.invalid_tool_calls[0]["id"]]
    assert len(set(ids)) == 2
    assert all(isinstance(each, str) and each.startswith("call_") for each in ids)
    assert message == again
    other = [chunk.model_copy(update={"id": "m2"}) for chunk in chunks]
    assert message_from_stream(other).tool_calls[0]["id"] not in ids


def test_a_whole_message_is_returned_as_it_is():
    """A model with `disable_streaming` yields it in place of chunks."""
    whole = AIMessage("Hi.", id="1", tool_calls=[{"name": "t", "args": {}, "id": "c1"}])
    assert message_from_stream([whole]) is whole


def test_a_chunk_that_bypassed_validation_is_corrected():
    """None as content is empty; any other value is its text."""
    empty = AIMessageChunk.model_construct(content=None, tool_call_chunks=START.tool_call_chunks)
    assert listed(message_from_stream([empty], ended=True)) == ([("weather", {})], [])
    assert message_from_stream([AIMessageChunk.model_construct(content=7)]).content == "7"


@pytest.mark.parametrize("function", [message_from_stream, merge_tool_call_chunks])
async def test_a_wrong_argument_is_a_clear_error(function):
    """A text, a message and an async stream; for that one the error says how to collect it."""

    async def stream():
        yield START

    for wrong in ("text", START):
        with pytest.raises(StreamError, match=r"Expected .*, got "):
            function(wrong)
    with pytest.raises(StreamError, match=rf"{function.__name__}\(\[chunk async for chunk in"):
        function(stream())
    with pytest.raises(StreamError, match=r"got 'no chunk'|'no chunk' is not a tool call chunk"):
        function(["no chunk"])


def test_one_id_under_two_indexes_stays_two_calls():
    """The index decides, not the id."""
    chunks = [*call("{}", index=1, id="c1", name="a").tool_call_chunks]
    chunks += call("{}", index=0, id="c1", name="b").tool_call_chunks
    assert merge_tool_call_chunks(chunks) == chunks[::-1]


def test_a_merged_call_is_a_copy():
    """Whoever changes one does not change the stream's chunk."""
    for index in (None, 0):
        (piece,) = call("{}", index=index, id="c1", name="a").tool_call_chunks
        (merged,) = merge_tool_call_chunks([piece])
        assert merged == piece
        assert merged is not piece


# --- messages --------------------------------------------------------------------------------


def listed(message: AIMessage) -> tuple[list[Any], list[Any]]:
    """The calls of a message: (name, args) of the valid ones, (name, raw text) of the others."""
    return (
        [(c["name"], c["args"]) for c in message.tool_calls],
        [(c["name"], c["args"]) for c in message.invalid_tool_calls],
    )


@pytest.mark.parametrize(
    ("raw", "args"),
    [
        ('{"q": "weather"}', {"q": "weather"}),
        (' {"q": 1}\n', {"q": 1}),
        ("{}", {}),
        ('{"q": "wea', None),
        ('{"q": ["a", {"b', None),
        ("{", None),
        ('{"q": 1}}', None),
        ("[1]", None),
        ("null", None),
        ("  ", None),
        ("not json", None),
        ('{"q": "a\nb"}', {"q": "a\nb"}),  # a raw newline: LangChain's parser takes it too
        ('{"q": "a\nb', None),
        ('{"q": ' + "[" * 100_000, None),
    ],
)
@pytest.mark.parametrize("ended", [True, False])
def test_only_a_complete_json_object_makes_a_call(raw, args, ended):
    """LangChain completes cut-off arguments; here the raw text must be whole, ended or not."""
    message = message_from_stream([call(raw, id="c1", name="t")], ended=ended)
    expected = ([("t", args)], []) if args is not None else ([], [("t", raw)])
    assert listed(message) == expected


FINISH = {"model_provider": "openai", "finish_reason": "tool_calls"}
ENDS = [
    *[("finish_reason", reason) for reason in ("stop", "function_call", "STOP", "eos_token")],
    *[("finish_reason", reason) for reason in ("COMPLETE", "TOOL_CALL")],  # Cohere
    *[("stop_reason", reason) for reason in ("end_turn", "stop_sequence")],
]
"""Reasons for which a model ends by itself, as integrations store them."""

CUTS = [
    *[("stopReason", reason) for reason in ("guardrail_intervened", "content_filtered")],
    *[("stopReason", reason) for reason in ("malformed_tool_use", "malformed_model_output")],
    *[("stop_reason", reason) for reason in ("refusal", "model_context_window_exceeded")],
    *[("stop_reason", reason) for reason in ("pause_turn", "compaction")],
    *[("finish_reason", reason) for reason in ("model_length", "error", "content_filter")],
    *[("finish_reason", reason) for reason in ("SAFETY", "MALFORMED_FUNCTION_CALL", "OTHER")],
    *[("finish_reason", reason) for reason in ("insufficient_system_resource", "of_tomorrow")],
    *[("status", reason) for reason in ("failed", "cancelled", "in_progress", "queued")],
    ("done_reason", "load"),
]
"""Reasons that say, or may say, that it was stopped."""


@pytest.mark.parametrize(
    ("end", "ended"),
    [
        ([], False),
        ([LAST], True),
        ([say(response_metadata=FINISH)], True),
        ([say(response_metadata={"stop_reason": "tool_use"})], True),
        ([say(response_metadata={"stopReason": "tool_use"})], True),
        ([say(response_metadata={"done_reason": "stop"})], True),
        ([say(response_metadata={"status": "completed"}, chunk_position="last")], True),
        ([say(response_metadata={"status": "incomplete"}, chunk_position="last")], False),
        ([say(response_metadata={"finish_reason": "length"}), LAST], False),
        ([say(response_metadata={"finish_reason": "MAX_TOKENS"}), LAST], False),
        ([say(response_metadata={"stop_reason": "max_tokens"}, chunk_position="last")], False),
        ([say(response_metadata={"model_provider": "openai"}), LAST], False),
        ([say(response_metadata={"finish_reason": None}), LAST], True),
        ([say(response_metadata=FINISH), say(response_metadata=FINISH)], True),
        ([say(response_metadata={"finish_reason": "stopstop"})], True),
        *[([say(response_metadata={key: reason})], True) for key, reason in ENDS],
        *[([say(response_metadata={key: reason}), LAST], False) for key, reason in CUTS],
    ],
)
def test_empty_arguments_are_those_of_a_call_only_if_the_model_had_finished(end, ended):
    """The provider's reason counts; `last` alone only where no reason is sent."""
    chunks = [START, call(None), *end]
    assert listed(message_from_stream(chunks)) == (
        ([("weather", {})], []) if ended else ([], [("weather", "")])
    )
    for output in (True, False):
        expected = ([("weather", {})], []) if output else ([], [("weather", "")])
        assert listed(message_from_stream(chunks, ended=output)) == expected


def test_a_pause_leaves_the_call_of_a_server_open():
    """Claude pauses to be called again with its own output; that finishes no other call."""
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    for reason, kept in (("pause_turn", True), ("refusal", False)):
        end = say([], response_metadata={"stop_reason": reason}, chunk_position="last")
        message = message_from_stream([say([search]), START, call(None), end])
        assert listed(message) == ([], [("weather", "")])
        assert message.content == ([search] if kept else "")


def test_everything_but_the_calls_is_merged_as_langchain_does_it():
    """Text, reasoning, id, usage, metadata and extra keys are those of the sum of the chunks."""
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}
    chunks = [
        AIMessageChunk([], id="lc_run--1", response_metadata={"model_provider": "anthropic"}),
        think("h"),
        think("m"),
        AIMessageChunk([{"type": "text", "text": "See", "index": 1}], id="msg_1"),
        AIMessageChunk([{"type": "text", "text": ":", "index": 1}], usage_metadata=usage),
        call('{"city": ', id="c1", name="weather"),
        call('"Rome"}'),
        say([], additional_kwargs={"refusal": None}, response_metadata={"stop_reason": "end"}),
    ]
    before = copy.deepcopy(chunks)
    merged = chunks[0] + chunks[1:]
    assert message_from_stream(iter(chunks)) == AIMessage(
        merged.content,
        id="msg_1",
        usage_metadata=usage,
        response_metadata=merged.response_metadata,
        additional_kwargs={"refusal": None},
        tool_calls=[{"name": "weather", "args": {"city": "Rome"}, "id": "c1"}],
    )
    assert chunks == before


def test_calls_come_in_the_order_of_their_indexes_whichever_arrived_first():
    """Interleaved, sparse and index-less pieces: LangChain's order would be that of arrival."""
    chunks = [
        call('{"n": ', index=7, id="c7", name="seven"),
        call('{"n": 2}', index=2, id="c2", name="two"),
        call("7}", index=7),
        call('{"n": 0}', index=None, id="c0", name="loose"),
        call('{"cut', index=3, id="c3", name="three"),
    ]
    assert listed(message_from_stream(chunks)) == (
        [("loose", {"n": 0}), ("two", {"n": 2}), ("seven", {"n": 7})],
        [("three", '{"cut')],
    )


def test_a_repeated_name_is_one_name():
    """LangChain would call it `weatherweather`."""
    chunks = [call("{", id="c1", name="weather"), call("}", id="c1", name="weather")]
    assert listed(message_from_stream(chunks)) == ([("weather", {})], [])


def test_a_piece_without_a_name_is_no_call_to_run():
    """Whatever its arguments are: nobody knows which tool it calls."""
    chunks = [call("{}", index=None, id="c1"), call("{}", index=3), call("", index=None)]
    assert listed(message_from_stream(chunks)) == ([], [(None, "{}"), (None, "{}")])


def test_nothing_makes_an_empty_message():
    """No chunk, or empty ones only: there is nothing to store."""
    assert message_from_stream([]) == AIMessage("")
    assert message_from_stream([say([], id="1"), say([])]) == AIMessage("", id="1")


@pytest.mark.parametrize("kind", ["tool_use", "function_call", "tool_call_chunk", "tool_call"])
def test_the_block_of_an_unfinished_call_keeps_its_place_with_empty_arguments(kind):
    """A block that repeats the cut text would be sent as it is, or refused."""
    started = {
        "tool_use": {"id": "c1", "name": "t", "input": {}, "partial_json": '{"a'},
        "function_call": {"call_id": "c1", "id": "fc_1", "name": "t", "arguments": '{"a'},
        "tool_call_chunk": {"id": "c1", "name": "t", "args": '{"a'},
        "tool_call": {"id": "c1", "name": "t", "args": {"a": None}},
    }[kind]
    settled = {
        "tool_use": {"type": "tool_use", "id": "c1", "name": "t", "input": {}},
        "function_call": {"type": kind, **started, "arguments": "{}"},
        "tool_call_chunk": {"type": "tool_call", "id": "c1", "name": "t", "args": {}},
        "tool_call": {"type": "tool_call", "id": "c1", "name": "t", "args": {}},
    }[kind]
    thought = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    piece = {"name": "t", "args": '{"a', "id": "c1", "index": 1}
    chunk = AIMessageChunk([thought, {"type": kind, **started}], tool_call_chunks=[piece])
    message = message_from_stream([chunk])
    assert message.content == [thought, settled]
    assert message.additional_kwargs == {}


def test_the_blocks_of_finished_calls_stay_as_langchain_leaves_them():
    """So do those of calls that are in the content only."""
    block = {"type": "tool_use", "id": "c1", "name": "t", "input": {}, "partial_json": "{}"}
    piece = {"name": "t", "args": "{}", "id": "c1", "index": 0}
    chunk = AIMessageChunk([block], tool_call_chunks=[piece])
    assert message_from_stream([chunk]).content == [block]
    unlisted = {"type": "tool_use", "id": "c2", "name": "t", "input": {}}
    assert message_from_stream([AIMessageChunk([unlisted])]).content == [unlisted]


@pytest.mark.parametrize("version", [{"output_version": "v1"}, {}])
def test_a_block_that_only_streams_have_becomes_the_standard_one(version):
    """OpenAI and Anthropic refuse a `tool_call_chunk`; the chunk itself is not changed."""
    piece = {"name": "t", "args": '{"a": 1}', "id": "c1", "index": 0}
    block = {"type": "tool_call_chunk", **piece}
    chunk = AIMessageChunk([block], tool_call_chunks=[piece], response_metadata=version)
    (settled,) = message_from_stream([chunk]).content
    assert {key: value for key, value in settled.items() if key != "index"} == {
        "type": "tool_call",
        "id": "c1",
        "name": "t",
        "args": {"a": 1},
    }
    assert chunk.content == [{"type": "tool_call_chunk", **piece}]


def test_the_block_of_a_call_without_arguments_gets_them():
    """Bedrock's block of such a call has no `input`, and its own integration raises at it."""
    block = {"type": "tool_use", "id": "c1", "name": "t"}
    piece = {"name": "t", "args": None, "id": "c1", "index": 0}
    message = message_from_stream([AIMessageChunk([block], tool_call_chunks=[piece])], ended=True)
    assert message.content == [{**block, "input": {}}]


THOUGHT = {"type": "thinking", "thinking": "hm"}
SEARCH = {"type": "server_tool_use", "id": "s1", "name": "search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": []}
WORDS = {"type": "text", "text": "See:"}
PIECE = {"type": "input_json_delta", "partial_json": "{", "index": 4}


@pytest.mark.parametrize(
    ("content", "kept", "unfinished"),
    [
        ([THOUGHT], "", [THOUGHT]),
        ([WORDS, THOUGHT], [WORDS], [THOUGHT]),
        ([THOUGHT, WORDS], [THOUGHT, WORDS], []),
        ([WORDS, SEARCH], [WORDS], [SEARCH]),
        ([THOUGHT, SEARCH], "", [THOUGHT, SEARCH]),
        ([SEARCH, FOUND], [SEARCH, FOUND], []),
        ([WORDS, PIECE], [WORDS], [PIECE]),
        ([WORDS, {"type": "tool_use", "input": "{", "id": None}], [WORDS], [...]),
        (["plain", THOUGHT], ["plain"], [THOUGHT]),
    ],
)
def test_what_a_cut_left_open_leaves_the_content_and_is_kept(content, kept, unfinished):
    """Reasoning that nothing follows, a search without its result, a piece without a start."""
    message = message_from_stream([AIMessageChunk(content)])
    unfinished = content[-1:] if unfinished == [...] else unfinished
    assert message.content == kept
    assert message.additional_kwargs == ({UNFINISHED_KEY: unfinished} if unfinished else {})


def test_reasoning_that_is_not_open_stays():
    """The stream had ended, or the calls that it was thought for stand outside the content."""
    assert message_from_stream([AIMessageChunk([THOUGHT])], ended=True).content == [THOUGHT]
    piece = {"name": "t", "args": "{}", "id": "c1", "index": 0}
    called = message_from_stream([AIMessageChunk([THOUGHT], tool_call_chunks=[piece])])
    assert called.content == [THOUGHT]


def test_the_raw_copy_of_an_unfinished_call_goes():
    """Mistral keeps one in `additional_kwargs`; that of finished calls stays."""
    for text, kept in (("{}", True), ('{"a', False)):
        function = {"name": "t", "arguments": text}
        raw = [{"id": "c1", "type": "function", "function": function, "index": 0}]
        piece = {"name": "t", "args": text, "id": "c1", "index": 0}
        chunk = AIMessageChunk(
            "", additional_kwargs={"tool_calls": raw, "x": 1}, tool_call_chunks=[piece]
        )
        extra = {"tool_calls": raw, "x": 1} if kept else {"x": 1}
        assert message_from_stream([chunk]).additional_kwargs == extra


def test_chunks_that_contradict_each_other_are_a_clear_error():
    """Two names for one index, or metadata that LangChain cannot merge."""
    with pytest.raises(StreamError, match="names: 'get_' and 'weather'"):
        message_from_stream([call("", id="c1", name="get_"), call("", name="weather")])
    odd = [say(id="1", response_metadata={"x": 1}), say(response_metadata={"x": "1"})]
    with pytest.raises(StreamError, match="cannot be merged") as raised:
        message_from_stream(odd)
    assert isinstance(raised.value.__cause__, TypeError)
    with pytest.raises(StreamError, match=r"got AIMessage\(content='whole'"):
        message_from_stream([say("a"), AIMessage("whole")])


texts = st.text(max_size=6)
chunk_lists = st.lists(
    st.one_of(
        texts.map(say),
        st.builds(
            call,
            st.sampled_from([None, "", "{", '{"a": 1}', "}", '"b"']),
            index=st.sampled_from([None, 0, 1]),
        ),
        st.builds(
            lambda index, args: call(args, index=index, id=f"c{index}", name=f"t{index}"),
            st.sampled_from([0, 1]),
            st.sampled_from(["", "{", "{}"]),
        ),
    ),
    max_size=8,
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(chunk_lists, st.booleans())
def test_a_call_is_listed_once_and_is_valid_only_if_its_text_is_an_object(chunks, ended):
    """In any stream the raw text of every merged call decides, and no text is lost."""
    before = copy.deepcopy(chunks)
    message = message_from_stream(chunks, ended=ended)
    merged = merge_tool_call_chunks([p for chunk in chunks for p in chunk.tool_call_chunks])
    valid, invalid = [], []
    for piece in merged:
        args = complete_args(piece["args"]) if piece["args"] or ended else None
        if piece["name"] is not None and args is not None:
            valid.append((piece["id"], json.dumps(args)))
        elif piece["id"] or piece["name"] or piece["args"]:
            invalid.append((piece["id"], piece["args"] or ""))
    listed_ids = [c["id"] for c in [*message.tool_calls, *message.invalid_tool_calls]]
    assert len(set(listed_ids)) == len(listed_ids) or any(p["id"] for p in merged)
    assert all(listed_ids)
    found = [(c["id"], json.dumps(c["args"])) for c in message.tool_calls]
    assert [(own or None, args) for own, args in valid] == [
        (i if (i, a) in valid else None, a) for i, a in found
    ]
    raw = [(c["id"], c["args"]) for c in message.invalid_tool_calls]
    assert [text for _, text in raw] == [text for _, text in invalid]
    assert all(own in (None, "", given) for (own, _), (given, _) in zip(invalid, raw, strict=True))
    assert message.text == "".join(chunk.text for chunk in chunks)
    assert chunks == before


# --- what the integrations stream --------------------------------------------------------------

STYLES = {**INTEGRATIONS, **WITH_BLOCKS}
WIRE_OF = {"OpenAI": "openai-responses", "OpenAI Chat": "openai-chat", "Anthropic": "anthropic"}
FINISHED = {"weather": {"city": "Rome"}, "now": {}}
"""The arguments of every call in the streams: nothing else may become a call."""


def wire_of(name: str) -> str | None:
    """The wire that the message goes back to, if its rules are known."""
    return next((WIRE_OF[key] for key in sorted(WIRE_OF, reverse=True) if key in name), None)


def assert_goes_on(message: AIMessage, name: str) -> None:
    """The message is stored, the human writes again, and the wires accept the history."""
    if not (message.content or message.tool_calls or message.invalid_tool_calls):
        return  # nothing had arrived, so there is nothing to store
    for each in message.tool_calls:
        assert each["args"] == FINISHED[each["name"]]
    history = [HumanMessage("hi", id="1"), message, HumanMessage("well?", id="3")]
    patched = patch_messages(history).messages
    causes = {
        m.tool_call_id: m.additional_kwargs[PLACEHOLDER_KEY]["cause"]
        for m in patched
        if isinstance(m, ToolMessage)
    }
    assert causes == {
        **{each["id"]: "unknown" for each in message.tool_calls},
        **{each["id"]: "malformed" for each in message.invalid_tool_calls},
    }
    assert validate_messages(patched) == []
    has_search = any("server_tool" in str(block) for block in message.content)
    # Bedrock's integration raises at a server-side tool of Anthropic's, whole or cut.
    wires = ("anthropic",) if has_search else WIRES
    assert {wire: found for wire in wires if (found := refusals(wire, patched))} == {}
    if wire := wire_of(name):
        assert refusals(wire, patched, ours_only=False) == []


@pytest.mark.parametrize("name", STYLES)
def test_a_cut_behind_every_chunk_leaves_a_history_that_every_wire_accepts(name):
    """Only finished calls are calls, each is answered; no text and no block is lost."""
    with paced(STYLES[name], 0) as server:
        server.events = STYLES[name].events(True, True)  # noqa: FBT003 - text and a call
        model = STYLES[name].model(server.url).bind_tools([weather])
        chunks = list(model.stream("How is the weather?"))
    before = copy.deepcopy(chunks)
    for cut in range(1, len(chunks) + 1):
        message = message_from_stream(chunks[:cut])
        assert_goes_on(message, name)
        # Copies, because LangChain rewrites streaming blocks in place once it sees "last".
        merged = add_ai_message_chunks(*copy.deepcopy(chunks[:cut]), LAST)
        assert (message.text, message.id) == (merged.text, merged.id)
        assert message.usage_metadata == merged.usage_metadata
        aside = message.additional_kwargs.get(UNFINISHED_KEY, [])
        assert other_blocks([*message.content, *aside]) == other_blocks(merged.content)
    assert chunks == before
    assert message.invalid_tool_calls == []
    assert {each["name"] for each in message.tool_calls} >= {"weather"}


@pytest.mark.parametrize("name", ["OpenAI Chat Completions", "OpenAI Responses", "Anthropic"])
def test_a_connection_that_breaks_off_anywhere_leaves_a_history_that_goes_on(name):
    """The server goes away in the middle of an event: what the integration made of it is stored."""
    body = b"".join(STYLES[name].events(True, True))  # noqa: FBT003 - text and a call
    with paced(STYLES[name], 0) as server:
        model = STYLES[name].model(server.url).bind_tools([weather])
        for cut in range(1, len(body), len(body) // 20):
            server.events = [body[:cut]]
            chunks = []
            with suppress(Exception):  # some integrations raise, others end silently
                chunks.extend(model.stream("How is the weather?"))
            assert_goes_on(message_from_stream(chunks), name)


def other_blocks(content: Any) -> list[Any]:
    """The blocks that are no calls; nothing of a text."""
    calls = {"tool_use", "function_call", "tool_call", "tool_call_chunk"}
    blocks = [block for block in content if isinstance(block, dict)]
    return [block for block in blocks if block["type"] not in calls]


# --- a thread --------------------------------------------------------------------------------


@pytest.mark.parametrize("leaves", [False, True], ids=["the provider cuts", "the client leaves"])
def test_a_stream_that_was_cut_is_stored_and_the_thread_goes_on(leaves):
    """What arrived is in the thread, each call is answered, and nothing is run."""
    parts = [say("Let me see."), call('{"city": "Rome"}', id="c1", name="weather")]
    parts += [call('{"ci', index=1, id="c2", name="weather"), ConnectionError("reset by peer")]
    model = ChunkModel(turns=[parts])
    graph = with_patching(by_hand(model, checkpointer=InMemorySaver()))
    thread = {"configurable": {"thread_id": "1"}}
    stream = graph.stream(INPUT, thread, stream_mode="messages")
    chunks = [next(stream)[0] for _ in parts[:-1]]
    if leaves:
        stream.close()
    else:
        with pytest.raises(ConnectionError, match="reset by peer"):
            next(stream)
    message = message_from_stream(chunks)
    assert listed(message) == ([("weather", {"city": "Rome"})], [("weather", '{"ci')])
    graph.update_state(thread, {"messages": [message]}, as_node="agent")
    graph.update_state(thread, None, as_node=END)  # no call of a cut turn is run
    assert graph.get_state(thread).next == ()
    assert graph.invoke({"messages": [HumanMessage("hello?")]}, thread)
    _, cut, *results, human, answer = graph.get_state(thread).values["messages"]
    assert (cut.text, human.text, answer.text) == ("Let me see.", "hello?", "whole")
    assert [m.tool_call_id for m in results] == ["c1", "c2"]
    assert all(is_placeholder(m) for m in results)


def test_a_node_routes_on_the_decision():
    """`split_stream` in a node: a call goes to the tools, an answer live to the client."""
    first = [call('{"city": "Rome"}', id="c1", name="weather")]
    model = ChunkModel(turns=[first, [say("Sunny"), say(".")]])

    def think(state: MessagesState) -> Command[str]:
        calls_tools, chunks = split_stream(model.stream(state["messages"]))
        arrived = []
        for chunk in chunks:
            arrived.append(chunk)
            if not calls_tools:
                get_stream_writer()(chunk.text)
        update = {"messages": [message_from_stream(arrived)]}
        return Command(update=update, goto="tools" if calls_tools else END)

    builder = StateGraph(MessagesState)
    builder.add_node("agent", think, destinations=("tools", END))
    builder.add_node("tools", ToolNode([weather]))
    builder.add_edge(BEGIN, "agent")
    builder.add_edge("tools", "agent")
    shown = list(builder.compile().stream(INPUT, stream_mode=["custom", "values"]))
    assert "".join(text for mode, text in shown if mode == "custom") == "Sunny."
    history = shown[-1][1]["messages"]
    assert [m.text for m in history[1:]] == ["", "sunny in Rome", "Sunny."]
