"""Where an `AIMessage` can carry a call, and what is read of it."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, FunctionMessage

from langgraph_patch import patch_messages
from langgraph_patch.history.calls import STOPPED, read_calls
from langgraph_patch.history.ids import PLACEHOLDER_KEY
from support.histories import (
    H,
    ai,
    call_of,
    chunk,
    defects,
    invalid_of,
    is_quiet,
    kinds,
    made,
    made_of_malformed,
    patched,
    repaired,
    result,
    with_field,
)
from support.placeholder_texts import INCOMPLETE, UNKNOWN

TOOL_USE = {"type": "tool_use", "id": "c1", "name": "t", "input": {"a": 1}}
STREAMED = {"type": "tool_use", "id": "c1", "name": "t", "input": {}, "index": 1}
FUNCTION_CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "t",
    "arguments": '{"a": 1}',
}
CUSTOM = {"type": "custom_tool_call", "id": "x1", "call_id": "c1", "name": "t", "input": "ls"}
COMPUTER = {"type": "computer_call", "id": "cu_1", "call_id": "k1", "action": {}}


class Block(dict):
    """A content block of a class of its own."""


def raw_of(arguments, call_id="c1", name="t"):
    """An item of `additional_kwargs["tool_calls"]`."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def raw_only(raw, **fields):
    """A message with calls in the provider's raw form only; LangChain's constructor lists them."""
    message = AIMessage("", additional_kwargs={"tool_calls": raw, **fields})
    return with_field(message, tool_calls=[], invalid_tool_calls=[])


def invalid(args, **fields):
    """A message with one invalid call, not validated."""
    return with_field(AIMessage(""), invalid_tool_calls=[invalid_of(args, **fields)])


def listed(args):
    """A message with one listed call, not validated."""
    return with_field(AIMessage(""), tool_calls=[{"name": "t", "args": args, "id": "c1"}])


A = {"a": 1}
READ = {
    "listed": (ai(("t", "c1", A)), ["tool_calls", A, None]),
    "listed, text": (listed('{"a": 1}'), ["tool_calls", A, None]),
    "listed, None": (listed(None), ["tool_calls", {}, None]),
    "listed, no text": (listed(""), ["tool_calls", {}, None]),
    "listed, cut": (listed("{"), ["tool_calls", {}, "{"]),
    "listed, number": (listed(7), ["tool_calls", {}, "7"]),
    "chunk": (chunk('{"a": 1}'), ["tool_calls", A, None]),
    "chunk, cut": (chunk('{"a": "use'), ["tool_calls", {}, '{"a": "use']),
    "chunk, raw newline": (chunk('{"a": "x\ny"}'), ["tool_calls", {"a": "x\ny"}, None]),
    "invalid": (invalid('{"a":'), ["invalid_tool_calls", {}, '{"a":']),
    "invalid, stopped": (invalid("{", error=STOPPED), ["stopped", {}, "{"]),
    "invalid, None": (invalid(None), ["invalid_tool_calls", {}, ""]),
    "invalid, no text": (invalid(""), ["invalid_tool_calls", {}, ""]),
    "invalid, complete": (invalid('{"a": 1}'), ["invalid_tool_calls", A, None]),
    "invalid, list": (invalid("[1]"), ["invalid_tool_calls", {}, "[1]"]),
    "invalid, deep": (invalid('{"a":' * 3_000), ["invalid_tool_calls", {}, '{"a":' * 3_000]),
    "invalid, no JSON type": (invalid([1]), ["invalid_tool_calls", {}, "[1]"]),
    "Anthropic": (AIMessage([TOOL_USE]), ["content", A, None, "tool_use"]),
    "Anthropic, other class": (
        with_field(AIMessage(""), content=[Block(TOOL_USE)]),
        ["content", A, None, "tool_use"],
    ),
    "Anthropic, stream": (
        AIMessage([{**STREAMED, "partial_json": '{"a": 1}'}]),
        ["content", A, None, "tool_use"],
    ),
    "Anthropic, cut stream": (
        AIMessage([{**STREAMED, "partial_json": '{"a"'}]),
        ["content", {}, '{"a"', "tool_use"],
    ),
    "Anthropic, both forms": (
        AIMessage([{**TOOL_USE, "partial_json": '{"a"'}]),
        ["content", A, None, "tool_use"],
    ),
    "Responses": (AIMessage([FUNCTION_CALL]), ["content", A, None, "function_call"]),
    "Responses, None": (
        AIMessage([{**FUNCTION_CALL, "arguments": None}]),
        ["content", {}, None, "function_call"],
    ),
    "standard": (
        AIMessage(["text", {"type": "tool_call", "id": "c1", "name": "t", "args": A}]),
        ["content", A, None, "tool_call"],
    ),
    "standard chunk": (
        AIMessage([{"type": "tool_call_chunk", "id": "c1", "name": "t", "args": '{"a": 1}'}]),
        ["content", A, None, "tool_call_chunk"],
    ),
    "standard, invalid": (
        AIMessage([{"type": "invalid_tool_call", "id": "c1", "name": "t", "args": "{"}]),
        ["content", {}, "{", "invalid_tool_call"],
    ),
    "wrapped": (
        AIMessage([{"type": "non_standard", "value": TOOL_USE}]),
        ["content", A, None, "tool_use"],
    ),
    "custom": (AIMessage([CUSTOM]), ["content", {"__arg1": "ls"}, None, "custom_tool_call"]),
    "listed and in a block": (
        AIMessage([TOOL_USE], tool_calls=[call_of("t", "c1", A)]),
        ["tool_calls", A, None, "tool_use"],
    ),
    "raw": (raw_only([raw_of('{"a": 1}')]), ["additional_kwargs", A, None]),
    "raw, cut": (raw_only([raw_of('{"b"'), "noise"]), ["additional_kwargs", {}, '{"b"']),
    "raw, no text": (raw_only([raw_of("")]), ["additional_kwargs", {}, None]),
    "raw, beside a list": (
        AIMessage(
            "", tool_calls=[call_of("t", "c1")], additional_kwargs={"tool_calls": [raw_of("{")]}
        ),
        ["tool_calls", {}, None],
    ),
}


@pytest.mark.parametrize("name", READ)
def test_f10_a_call_is_read_wherever_it_is(name):
    """Its source, arguments, incomplete arguments and block; it is read once."""
    message, (source, args, raw_args, *block_type) = READ[name]
    (call,) = read_calls(message, 3)
    assert (call.id, call.name, call.key, call.earlier_ids) == ("c1", "t", (3, 0), ())
    assert (call.source, call.args, call.raw_args) == (source, args, raw_args)
    assert call.block_type == (block_type[0] if block_type else None)
    is_whole = message.tool_calls and message.tool_calls[0]["args"] == args and not raw_args
    assert call.tool_call is (message.tool_calls[0] if is_whole else None)


NO_CALLS = {
    **{
        kind: AIMessage([{"type": kind, "id": "s1", "name": "web_search", "input": {}}])
        for kind in ("server_tool_use", "web_search_call", "mcp_call", "tool_result")
    },
    "computer call": AIMessage([COMPUTER]),
    "no types": AIMessage([{"no": "type"}, {"type": "non_standard", "value": {"no": "type"}}]),
    "unknown, wrapped": AIMessage([{"type": "non_standard", "value": {"type": "mystery"}}]),
    "wrapped text": AIMessage([{"type": "non_standard", "value": "x"}]),
    "type of a list": AIMessage([{"type": ["tool_use"], "id": "c1"}]),
    "raw number": AIMessage("a", additional_kwargs={"tool_calls": 7}),
    "raw dict": AIMessage("a", additional_kwargs={"tool_calls": {"id": "c1"}}),
    "raw texts": AIMessage("a", additional_kwargs={"tool_calls": ["c1"]}),
    "raw function, text": AIMessage("a", additional_kwargs={"function_call": "t"}),
}


@pytest.mark.parametrize("name", NO_CALLS)
def test_r27_what_is_no_call_of_a_client_gets_no_result(name):
    """Tools of the provider, unknown blocks, and whatever an application put there."""
    assert read_calls(NO_CALLS[name]) == []
    assert is_quiet([H("q"), NO_CALLS[name], H("z")])


def test_calls_are_in_the_order_of_their_sources():
    """Listed, invalid, in blocks; two of one id have a block each, and later ids are unlike."""
    message = AIMessage(
        [TOOL_USE, {**TOOL_USE, "id": "c4"}, {**FUNCTION_CALL, "call_id": None}],
        tool_calls=[call_of("t", "c1"), call_of("t", "c1"), call_of("u", "c2")],
        invalid_tool_calls=[invalid_of("{", "c3")],
    )
    assert [(call.ordinal, call.id, call.block_type) for call in read_calls(message)] == [
        (0, "c1", "tool_use"),
        (1, "c1", None),
        (2, "c2", None),
        (3, "c3", None),
        (4, "c4", "tool_use"),
        (5, "", "function_call"),
    ]


@pytest.mark.parametrize(
    ("stored", "earlier"),
    [
        ({"earlier_ids": {"c1": ["b", 7, "a"], "c2": ["x"]}}, ("b", "a")),
        ({"earlier_ids": {"c1": "c0"}}, ()),
        ({"earlier_ids": 7}, ()),
        (7, ()),
        (None, ()),
    ],
)
def test_f11_earlier_ids_are_read_from_the_marker(stored, earlier):
    """Those of the call, the oldest first; what an application stores there does not count."""
    message = with_field(ai("c1"), additional_kwargs={PLACEHOLDER_KEY: stored})
    assert read_calls(message)[0].earlier_ids == earlier


# --- unlisted calls in a history ----------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["Anthropic", "Responses", "standard", "standard chunk", "wrapped"]
)
def test_f10_a_call_that_is_only_in_a_block(name):
    """It is listed under the same id and answered; the content stays."""
    message, _ = READ[name]
    history = [H("q"), message, H("z")]
    listed_call = AIMessage(message.content, tool_calls=[call_of("t", "c1", A)])
    assert repaired(history) == [H("q"), listed_call, made("c1"), H("z")]
    assert kinds(history) == ["promoted", "inserted"]
    assert defects(history) == ["unlisted", "dangling"]


def test_f10_a_call_in_a_block_beside_one_that_is_listed():
    """Each is answered once."""
    history = [AIMessage([TOOL_USE], tool_calls=[call_of("t", "c2")])]
    message = AIMessage([TOOL_USE], tool_calls=[call_of("t", "c2"), call_of("t", "c1", A)])
    assert repaired(history) == [message, made("c2"), made("c1")]


def test_f10_calls_that_are_only_in_the_raw_form():
    """Chat Completions sends `additional_kwargs["tool_calls"]` if nothing else is there."""
    message = raw_only([raw_of('{"a": 1}'), raw_of('{"b"', "c2", "u"), raw_of("", "c3")])
    history = [message, result("r", "c1"), H("z")]
    names = call_of("t", "c1", A), call_of("u", "c2"), call_of("t", "c3")
    assert repaired(history) == [
        with_field(message, tool_calls=[*names]),
        result("r", "c1"),
        made_of_malformed("c2", '{"b"', "u"),
        made("c3"),
        H("z"),
    ]
    assert defects(history) == ["unlisted", "malformed", "unlisted", "malformed", "dangling"]


def test_f10_a_legacy_function_call():
    """It has no id: one is derived, and the raw form is removed, or it would be sent twice."""
    raw = {"name": "t", "arguments": '{"a": 1}'}
    history = [
        AIMessage("", additional_kwargs={"function_call": raw}),
        FunctionMessage("r", name="t"),
    ]
    message, answer = repaired(history)
    (call,) = message.tool_calls
    assert message == ai(("t", call["id"], A))
    assert answer == result("r", call["id"], name="t", id="result")


# --- incomplete arguments -------------------------------------------------------------------


@pytest.mark.parametrize(("args", "raw"), [('{"a":', '{"a":'), ("7", "7"), (None, "")])
def test_f09_malformed_arguments(args, raw):
    """The call is listed with `{}` and answered; its text is in the marker."""
    history = [H("q"), invalid(args), H("z")]
    assert repaired(history) == [H("q"), ai("c1"), made_of_malformed("c1", raw), H("z")]
    assert kinds(history) == ["promoted", "inserted"]
    assert defects(history) == ["malformed", "malformed"]


def test_f09_malformed_arguments_that_a_tool_node_answered():
    """The answer stays; the call is listed, since no provider takes a result without a call."""
    answer = result("Error: your arguments are no JSON", status="error")
    assert repaired([invalid("{"), answer]) == [ai("c1"), answer]


CUT_TEXT = AIMessage([{**TOOL_USE, "input": '{"a'}], invalid_tool_calls=[invalid_of('{"a')])


@pytest.mark.parametrize(
    ("message", "block", "answer"),
    [
        (CUT_TEXT, {**TOOL_USE, "input": {}}, made_of_malformed("c1", '{"a')),
        (READ["Anthropic, cut stream"][0], STREAMED, made_of_malformed("c1", '{"a"')),
        (READ["Anthropic, stream"][0], {**STREAMED, "input": A}, made("c1")),
    ],
)
def test_f09_a_block_is_sent_with_its_arguments_as_a_dict(message, block, answer):
    """Anthropic refuses a text as the input of a block; of a stream it is read if it is whole."""
    assert repaired([message]) == [ai(("t", "c1", block["input"]), content=[block]), answer]


def test_f25_a_stored_chunk_whose_arguments_were_cut():
    """LangChain's parser calls it valid; it is answered, and says the same after a checkpoint."""
    merged = chunk('{"a": "use') + AIMessageChunk(content="", chunk_position="last")
    assert merged.tool_calls == [call_of("t", "c1", {"a": "use"})]
    message, answer = repaired([merged])
    assert answer == made("c1", INCOMPLETE, "malformed", arguments='{"a": "use')
    loaded = AIMessageChunk.model_validate_json(message.model_dump_json())
    assert (loaded.tool_calls, loaded.invalid_tool_calls) == ([call_of("t", "c1")], [])
    assert is_quiet([loaded, result("r")])


def test_f25_a_raw_newline_in_a_text_is_no_cut():
    """LangChain's parser takes it, so the tool ran; what is cut is refused as ever."""
    assert is_quiet([chunk('{"q": "a\nb"}'), result("r")])
    assert defects([chunk('{"q": "a\nb'), result("r")]) == ["malformed"]


@pytest.mark.parametrize(
    "message", [invalid('{"a": 1}'), chunk('{"a'), invalid("{", error=STOPPED)]
)
def test_f09_what_cannot_run_is_never_left_open(message):
    """Whoever runs next would run it, or skip it: it is answered at once."""
    assert len(patched([message]).messages) == 2


# --- calls of OpenAI's Responses API that are no function calls --------------------------------


@pytest.mark.parametrize("block", [CUSTOM, {"type": "non_standard", "value": CUSTOM}])
def test_f10_a_custom_tool_call(block):
    """Its input is free text, and so is its result, which is in a block of its own."""
    message = AIMessage([block], tool_calls=[call_of("t", "c1", {"__arg1": "ls"})])

    def output(text):
        return [{"type": "custom_tool_call_output", "output": text}]

    assert repaired([AIMessage([block]), result("a.txt")]) == [message, result(output("a.txt"))]
    answer = with_field(made("c1"), content=output(UNKNOWN.format("t", "c1")))
    assert repaired([AIMessage([block])]) == [message, answer]


SCREEN = {"type": "input_image", "image_url": "data:image/png;base64,AAA"}
SHOWN = {"type": "computer_call_output", "call_id": "k1", "output": SCREEN}
COMPUTER_CALLS = [
    (AIMessage([COMPUTER]), result([SCREEN], "k1")),
    (
        AIMessage([{"type": "non_standard", "value": COMPUTER}]),
        result([{"type": "non_standard", "value": SHOWN}], "k1"),
    ),
    (AIMessage([], additional_kwargs={"tool_outputs": [COMPUTER]}), result("data:", "k1")),
]


@pytest.mark.parametrize(("message", "screen"), COMPUTER_CALLS, ids=["block", "v1", "v0"])
def test_the_result_of_a_computer_call_stays(message, screen):
    """The call is never listed; OpenAI gets both unchanged, also beside other damage."""
    history = [H("go"), message, screen, AIMessage("done"), H("x")]
    assert is_quiet(history)
    assert is_quiet([message, H("x")])
    assert repaired([*history, ai("c1")]) == [*history, ai("c1"), made("c1")]


def test_the_result_of_a_computer_call_does_not_part_a_call_from_its_results():
    """The model called both at once: the tools answer in any order."""
    both, (_, screen) = ai("c1", "c2", content=[COMPUTER]), COMPUTER_CALLS[0]
    first, second = result("r", "c1"), result("s", "c2")
    assert is_quiet([both, screen, first, second])
    assert not patched([both, first, screen])
    assert repaired([both, screen, first, H("x")]) == [both, first, made("c2"), screen, H("x")]


def test_only_what_a_computer_call_before_it_asked_for_stays():
    """No id, another id, a call that comes later: an orphan. A client's call has its result."""
    message, screen = COMPUTER_CALLS[0]
    nameless = AIMessage([{**COMPUTER, "call_id": None}])
    assert repaired([H("x"), screen, message]) == [H("x"), message]
    assert repaired([nameless, result("r", "")]) == [nameless]
    assert repaired([message, result("r", "k2")]) == [message]
    assert is_quiet([message, screen, ai("k1"), result("r", "k1"), H("x")])
    assert patch_messages([message, screen, ai("k1"), screen]).changes == ()
