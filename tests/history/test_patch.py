"""The pure core by example: each row of the table of defects, each history that was reported.

The number in a test's name is that of the failure mode (f) or of its repro (r); `bug` are
mistakes that this package once made itself. Histories are compared whole.
"""

from __future__ import annotations

import json
from datetime import date
from typing import Any
from uuid import UUID

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    trim_messages,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition
from pydantic import BaseModel

from langgraph_patch import (
    Change,
    Patch,
    PatchError,
    is_placeholder,
    patch_messages,
    validate_messages,
    with_patching,
)
from langgraph_patch.errors import MessagesError, OptionError
from langgraph_patch.history.pairing import read_history
from langgraph_patch.history.patch import Finding
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from support.open_ends import patched
from support.placeholder_texts import (
    DEEPAGENTS_CANCELLED,
    DEEPAGENTS_INCOMPLETE,
    DEEPAGENTS_MALFORMED,
    FAILED,
    INCOMPLETE,
    MALFORMED,
    UNKNOWN,
    WAITED,
    WAITED_UNTIL_ENDED,
)
from support.running import in_turn
from support.strict import StrictModel, refuse
from support.wires import payload

H = HumanMessage
DAY = date(2020, 1, 1)


def ai(*calls, content="", **fields):
    """A model's message with these calls, each an id (of the tool `t`) or a (name, id)."""
    named = [call if isinstance(call, tuple) else ("t", call) for call in calls]
    return AIMessage(content, tool_calls=[call_of(*call) for call in named], **fields)


def call_of(name, call_id, args=None):
    """An entry of `tool_calls`."""
    return {"name": name, "args": args or {}, "id": call_id, "type": "tool_call"}


def invalid_of(args, call_id="c1", name="t"):
    """An entry of `invalid_tool_calls`."""
    return {
        "name": name,
        "args": args,
        "id": call_id,
        "error": "no JSON",
        "type": "invalid_tool_call",
    }


def result(content, call_id, **fields):
    """What a tool answered."""
    return ToolMessage(content, tool_call_id=call_id, **fields)


def made(call_id, text=UNKNOWN, cause="unknown", name="t", **mark):
    """The placeholder that is expected for a call; its id is not compared."""
    return ToolMessage(
        text.format(name, call_id) if "{}" in text else text,
        tool_call_id=call_id,
        name=name,
        status="error",
        id="patch",
        additional_kwargs={PLACEHOLDER_KEY: {"cause": cause, **mark}},
    )


def made_of_malformed(call_id, arguments, name="t"):
    """The placeholder that is expected for a call with truncated arguments."""
    return made(call_id, MALFORMED, "malformed", name, arguments=arguments)


def without_made_ids(messages):
    """The messages; ids that a repair made are `patch` and `result`, and no earlier ids."""
    return [
        message.model_copy(update={"id": message.id.partition("-")[0]})
        if message.id and len(message.id) > 37 and message.id.startswith(("patch-", "result-"))
        else without_earlier_ids(message)
        for message in messages
    ]


def without_earlier_ids(message):
    """A message that calls tools, without the ids that its calls had before a repair."""
    if not isinstance(message, AIMessage):
        return message
    extra = {k: v for k, v in message.additional_kwargs.items() if k != PLACEHOLDER_KEY}
    return message.model_copy(update={"additional_kwargs": extra})


def repaired(history, **options):
    """The repaired history, checked to be valid and to stay as it is."""
    patch = patch_messages(history, **options)
    assert validate_messages(patch.messages) == []
    assert patch_messages(patch.messages, **options).messages is patch.messages
    return without_made_ids(patch.messages)


def kinds(history, **options):
    """What is done, in order."""
    return [change.kind for change in patch_messages(history, **options).changes]


def defects(history):
    """What is found, in order."""
    return [change.defect for change in validate_messages(history)]


# --- a call without a result -----------------------------------------------------------


def test_r01_a_new_message_instead_of_a_result():
    """The call is answered by a placeholder, before the new message."""
    history = [H("a"), ai("c1"), H("b")]
    assert repaired(history) == [H("a"), ai("c1"), made("c1"), H("b")]
    assert kinds(history) == ["inserted"]
    assert defects(history) == ["dangling"]


def test_r02_real_results_of_siblings_come_first_if_the_tools_differ():
    """Results come before the placeholders, which are in call order."""
    calls = ai(("a", "c1"), ("b", "c2"), ("d", "c3"))
    assert repaired([H("q"), calls, result("r2", "c2"), H("z")]) == [
        H("q"),
        calls,
        result("r2", "c2"),
        made("c1", name="a"),
        made("c3", name="d"),
        H("z"),
    ]


def test_placeholders_stand_in_call_order_behind_the_real_results():
    """Also beside a placeholder that is there already."""
    calls = ai(("a", "c1"), ("b", "c2"), ("d", "c3"), id="a1")
    old = patch_messages([calls]).messages[2]
    history = [calls, old, result("r3", "c3")]
    assert repaired(history) == [
        calls,
        result("r3", "c3"),
        made("c1", name="a"),
        old.model_copy(update={"id": "patch"}),
    ]


def test_results_stand_in_call_order_if_one_tool_is_called_twice():
    """A wire without ids (Gemini) tells the results of one tool apart by order alone."""
    calls = ai("c1", "c2", ("other", "c3"))
    assert repaired([calls, result("r2", "c2")]) == [
        calls,
        made("c1"),
        result("r2", "c2"),
        made("c3", name="other"),
    ]


def test_r19_an_answer_by_hand_stays():
    """One result is added; nothing else moves, nothing else goes."""
    history = [
        H("a", id="1"),
        ai("dead", id="2"),
        AIMessage("by hand", id="3"),
        H("b", id="4"),
        AIMessage("c", id="5"),
        H("d", id="6"),
    ]
    assert repaired(history) == [*history[:2], made("dead"), *history[2:]]


def test_r23_answered_calls_are_left_alone():
    """Results in another order than the calls, or with status error, are no damage."""
    history = [
        H("q"),
        ai("c1", "c2"),
        result("rejected", "c2", status="error"),
        result("approved", "c1"),
        AIMessage("done"),
    ]
    assert patch_messages(history).messages is history
    assert validate_messages(history) == []


def test_r29_an_ordinary_human_message_is_no_result():
    """Whatever a human says of the result stays where it is; the call gets a placeholder."""
    history = [H("q"), ai("c1"), H("tool returned r")]
    assert repaired(history) == [H("q"), ai("c1"), made("c1"), H("tool returned r")]


def test_pending_calls_are_left_to_whoever_runs_next():
    """Calls at the end stay open for an entry check; others do not."""
    history = [ai("c1"), H("x"), ai("c2", "c3"), result("r3", "c3")]
    assert patched(history).messages[3:] == history[2:]
    assert [change.defect for change in patched(history).changes] == ["dangling"]
    assert defects(history) == ["dangling", "dangling"]
    assert patched(history[2:]).changes == ()


def test_pending_calls_that_live_only_in_a_block_are_left_as_they_are():
    """Promoted and left open, such a call would be run by a tool node that did not run it."""
    history = [AIMessage([{"type": "tool_use", "id": "c1", "name": "t", "input": {}}])]
    assert patched(history).messages is history
    assert defects(history) == ["unlisted", "dangling"]


# --- malformed arguments ---------------------------------------------------------------


def test_r09_malformed_arguments():
    """The call is listed with `{}` and answered; the raw text is in the mark."""
    history = [H("q"), AIMessage("", invalid_tool_calls=[invalid_of('{"a":')]), H("z")]
    assert repaired(history) == [H("q"), ai("c1"), made_of_malformed("c1", '{"a":'), H("z")]
    assert kinds(history) == ["promoted", "inserted"]
    assert defects(history) == ["malformed", "malformed"]


def test_r09_malformed_arguments_that_a_tool_node_answered():
    """The answer stays; the call is listed, since no wire takes a result without a call."""
    answer = result("Error: your arguments are no JSON", "c1", status="error")
    history = [AIMessage("", invalid_tool_calls=[invalid_of("{")]), answer]
    assert repaired(history) == [ai("c1"), answer]


@pytest.mark.parametrize("args", [None, ""])
def test_f09_no_arguments_at_all(args):
    """LangChain found them invalid: the model did not even begin them."""
    history = [AIMessage("", invalid_tool_calls=[invalid_of(args)])]
    assert repaired(history) == [ai("c1"), made_of_malformed("c1", "")]
    assert defects(history) == ["malformed", "malformed"]


@pytest.mark.parametrize("arguments", [None, "", "{}"])
def test_f09_absent_arguments_are_those_of_a_tool_that_takes_none(arguments):
    """A call of a finished message is not malformed because it says nothing."""
    block = {**FUNCTION_CALL, "arguments": arguments}
    assert repaired([AIMessage([block])]) == [ai("c1", content=[block]), made("c1")]


def test_f09_arguments_that_are_complete_are_kept():
    """What LangChain could not parse, but is a JSON object, is the call's arguments."""
    history = [AIMessage("", invalid_tool_calls=[invalid_of('{"a": 1}')])]
    assert repaired(history)[0].tool_calls == [call_of("t", "c1", {"a": 1})]


@pytest.mark.parametrize("args", ["[1]", "7", '"x"', "null", "nope", 5, [1]])
def test_f09_arguments_that_are_no_object_are_malformed(args):
    """A JSON value of another kind is no arguments."""
    message = AIMessage("").model_copy(update={"invalid_tool_calls": [invalid_of(args)]})
    raw = args if isinstance(args, str) else repr(args)
    assert repaired([message]) == [ai("c1"), made_of_malformed("c1", raw)]


def test_f09_the_block_of_a_malformed_call_is_sent_without_its_text():
    """Anthropic refuses a text as the input of a `tool_use` block that is sent as it is."""
    block = {"type": "tool_use", "id": "c1", "name": "t", "input": '{"a'}
    history = [AIMessage([block], invalid_tool_calls=[invalid_of('{"a')])]
    assert repaired(history) == [
        ai("c1", content=[{**block, "input": {}}]),
        made_of_malformed("c1", '{"a'),
    ]


def test_r25_a_stored_chunk_whose_arguments_were_cut():
    """LangChain's partial parser calls it valid; the raw text says that it is not."""
    cut = AIMessageChunk(
        content="", tool_call_chunks=[{"name": "t", "args": '{"a": "use', "id": "c1", "index": 0}]
    )
    merged = cut + AIMessageChunk(content="", chunk_position="last")
    assert merged.tool_calls == [call_of("t", "c1", {"a": "use"})]
    after_repair, answer = repaired([merged])
    assert (after_repair.tool_calls, after_repair.invalid_tool_calls) == ([call_of("t", "c1")], [])
    assert answer == made("c1", INCOMPLETE, "malformed", arguments='{"a": "use')


def test_r25_a_raw_newline_in_a_text_is_no_cut():
    """LangChain's parser takes it, so the tool ran; what is cut is refused as ever."""

    def caller(raw):
        piece = {"name": "t", "args": raw, "id": "c1", "index": 0}
        return AIMessageChunk("", tool_call_chunks=[piece])

    history = [caller('{"q": "a\nb"}'), result("r", "c1")]
    assert patch_messages(history).messages is history
    assert defects([caller('{"q": "a\nb'), result("r", "c1")]) == ["malformed"]


def test_r25_a_repaired_chunk_survives_a_checkpoint():
    """Loaded again, the chunk still says what the repair made of it."""
    cut = AIMessageChunk(
        content="", tool_call_chunks=[{"name": "t", "args": "{", "id": "c1", "index": 0}]
    )
    after_repair, _ = repaired([cut])
    loaded = AIMessageChunk(**json.loads(json.dumps(after_repair.model_dump())))
    assert loaded.tool_calls == [call_of("t", "c1")]
    assert validate_messages([loaded, result("r", "c1")]) == []


# --- calls that are not listed ---------------------------------------------------------

TOOL_USE = {"type": "tool_use", "id": "c1", "name": "t", "input": {"a": 1}}
FUNCTION_CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "c1",
    "name": "t",
    "arguments": '{"a": 1}',
}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "sig=="}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}


@pytest.mark.parametrize(
    "content",
    [
        [FUNCTION_CALL],
        [TOOL_USE],
        [THINKING, TOOL_USE],
        [REASONING, FUNCTION_CALL],
        ["text", {"type": "tool_call", "id": "c1", "name": "t", "args": {"a": 1}}],
        [{"type": "tool_call_chunk", "id": "c1", "name": "t", "args": '{"a": 1}', "index": 0}],
        [{"type": "non_standard", "value": TOOL_USE}],
    ],
)
def test_r10_a_call_that_lives_only_in_a_block(content):
    """It is promoted under the same id and answered; the content stays byte for byte."""
    history = [H("q"), AIMessage(content), H("z")]
    after_repair = AIMessage(content, tool_calls=[call_of("t", "c1", {"a": 1})])
    assert repaired(history) == [H("q"), after_repair, made("c1"), H("z")]
    assert kinds(history) == ["promoted", "inserted"]
    assert defects(history) == ["unlisted", "dangling"]


@pytest.mark.parametrize("extra", [{}, {"caller": {"type": "direct"}}])
def test_r10_the_arguments_of_a_block_out_of_a_stream(extra):
    """Claude's streams leave the input empty and the text beside it: it is read, if it is whole."""

    def caller(text):
        streamed = {**TOOL_USE, "input": {}, "partial_json": text, "index": 1, **extra}
        return AIMessage([streamed])

    settled = {**TOOL_USE, "index": 1, **extra}
    whole, answer = repaired([caller('{"to": "bob"}'), result("sent", "c1")])
    assert whole == ai("c1", content=[{**settled, "input": {"to": "bob"}}]).model_copy(
        update={"tool_calls": [call_of("t", "c1", {"to": "bob"})]}
    )
    assert answer == result("sent", "c1")
    cut = '{"to": "bo'
    assert repaired([caller(cut)]) == [
        ai("c1", content=[{**settled, "input": {}}]),
        made_of_malformed("c1", cut),
    ]
    sent = payload("anthropic", [H("x"), whole, answer])[1]["content"]
    assert [block["input"] for block in sent] == [{"to": "bob"}]


def test_r10_a_call_in_a_block_beside_one_that_is_listed():
    """Each is answered once."""
    history = [AIMessage([TOOL_USE], tool_calls=[call_of("t", "c2")])]
    after_repair = AIMessage(
        [TOOL_USE], tool_calls=[call_of("t", "c2"), call_of("t", "c1", {"a": 1})]
    )
    assert repaired(history) == [after_repair, made("c2"), made("c1")]


def raw_only(*calls):
    """A model's message with calls in the provider's raw form only."""
    message = AIMessage("", additional_kwargs={"tool_calls": list(calls)})
    # LangChain would list them; a checkpoint of an old version does not.
    return message.model_copy(update={"tool_calls": [], "invalid_tool_calls": []})


def raw_of(name, call_id, arguments):
    """An entry of `additional_kwargs["tool_calls"]`."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_f10_calls_that_live_only_in_the_raw_form():
    """Chat Completions sends `additional_kwargs["tool_calls"]` if nothing else is there."""
    raw = [raw_of("t", "c1", '{"a": 1}'), raw_of("u", "c2", '{"b"'), raw_of("v", "c3", "")]
    history = [raw_only(*raw), result("r", "c1"), H("z")]
    listed = [call_of("t", "c1", {"a": 1}), call_of("u", "c2"), call_of("v", "c3")]
    assert repaired(history) == [
        raw_only(*raw).model_copy(update={"tool_calls": listed}),
        result("r", "c1"),
        made_of_malformed("c2", '{"b"', "u"),
        made("c3", name="v"),
        H("z"),
    ]
    assert kinds(history) == ["promoted"] * 3 + ["inserted"] * 2
    assert defects(history) == ["unlisted", "malformed", "unlisted", "malformed", "dangling"]


def test_f10_a_raw_call_is_renamed_in_the_raw_form_too():
    """Its new id and name stand in both places; what is no call stays as it is."""
    raw = [raw_of("no good", "c 1", "{}"), "noise", {"id": "c2", "function": None}]
    after_repair, *_ = repaired([raw_only(*raw)])
    new_id = after_repair.tool_calls[0]["id"]
    assert new_id.startswith("c_1_")
    assert after_repair == AIMessage(
        "",
        additional_kwargs={"tool_calls": [raw_of("no_good", new_id, "{}"), *raw[1:]]},
        tool_calls=[call_of("no_good", new_id), call_of("unknown_tool", "c2")],
    )


def test_f10_a_listed_call_is_renamed_in_the_raw_form_too():
    """A provider's raw form beside the list does not keep the old id."""
    message = AIMessage(
        "",
        tool_calls=[call_of("t", "c 1")],
        additional_kwargs={"tool_calls": [raw_of("t", "c 1", "{}")]},
    )
    after_repair, _ = repaired([message])
    new_id = after_repair.tool_calls[0]["id"]
    assert after_repair.additional_kwargs == {"tool_calls": [raw_of("t", new_id, "{}")]}


def test_f10_a_raw_call_without_a_result_stays_as_it_is():
    """The list counts: a call that is in the raw form alone is not sent."""
    raw = [raw_of("t", "c9", "{}"), raw_of("t", "c 1", "{}"), raw_of("t", "c 1", "{}")]
    message = AIMessage(
        "", tool_calls=[call_of("t", "c 1")], additional_kwargs={"tool_calls": raw, "refusal": None}
    )
    after_repair, _ = repaired([message])
    new_id = after_repair.tool_calls[0]["id"]
    assert after_repair.additional_kwargs == {
        "tool_calls": [raw[0], raw_of("t", new_id, "{}"), raw[2]],
        "refusal": None,
    }


def test_f10_a_legacy_function_call():
    """It has no id: one is derived, and the raw form is removed, or it would be sent twice."""
    raw = {"name": "t", "arguments": "{}"}
    history = [
        AIMessage("", additional_kwargs={"function_call": raw}),
        FunctionMessage(name="t", content="r"),
    ]
    after_repair, answer = repaired(history)
    (call,) = after_repair.tool_calls
    assert after_repair == ai(("t", call["id"]))
    assert answer == result("r", call["id"], name="t", id="result")


CUSTOM = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "sh", "input": "ls"}


@pytest.mark.parametrize("block", [CUSTOM, {"type": "non_standard", "value": CUSTOM}])
def test_f10_a_custom_tool_call(block):
    """Its input is free text, and so is its result, which is in a block of its own."""
    call = call_of("sh", "c1", {"__arg1": "ls"})
    history = [AIMessage([block]), result("a.txt", "c1")]
    output = [{"type": "custom_tool_call_output", "output": "a.txt"}]
    assert repaired(history) == [AIMessage([block], tool_calls=[call]), result(output, "c1")]
    output = [{"type": "custom_tool_call_output", "output": UNKNOWN.format("sh", "c1")}]
    placeholder = made("c1", name="sh").model_copy(update={"content": output})
    assert repaired(history[:1]) == [AIMessage([block], tool_calls=[call]), placeholder]


TEXTS = [{"type": "text", "text": "a."}, "txt"]
IMAGE = {"type": "image", "url": "https://x.y/z.png"}


@pytest.mark.parametrize(
    ("content", "wrapped"),
    [
        (TEXTS, [{"type": "custom_tool_call_output", "output": "a.txt"}]),
        ([], [{"type": "custom_tool_call_output", "output": ""}]),
        ([*TEXTS, IMAGE], [{"type": "custom_tool_call_output", "output": "a.txt"}, IMAGE]),
    ],
)
def test_f10_the_blocks_of_a_custom_call_s_result_are_wrapped(content, wrapped):
    """As they are they would answer a function call; what is no text is not lost."""
    call = call_of("sh", "c1", {"__arg1": "ls"})
    caller = AIMessage([CUSTOM], tool_calls=[call])
    assert defects([caller, result(content, "c1")]) == ["wrong_role"]
    assert repaired([caller, result(content, "c1")]) == [caller, result(wrapped, "c1")]


@pytest.mark.parametrize("wrap", [lambda b: b, lambda b: {"type": "non_standard", "value": b}])
def test_f10_a_custom_output_gets_the_new_id_wherever_it_is(wrap):
    """In v1 content it is inside another block, and is sent as it is."""
    call = call_of("sh", "c 1", {"__arg1": "ls"})
    output = {"type": "custom_tool_call_output", "call_id": "c 1", "output": "a"}
    caller = AIMessage([wrap({**CUSTOM, "call_id": "c 1"})], tool_calls=[call])
    after_repair, answer = repaired([caller, result([wrap(output)], "c 1")])
    new_id = after_repair.tool_calls[0]["id"]
    assert after_repair.content == [wrap({**CUSTOM, "call_id": new_id})]
    assert answer == result([wrap({**output, "call_id": new_id})], new_id)


# --- OpenAI's computer calls -------------------------------------------------------------

COMPUTER = {
    "type": "computer_call",
    "id": "cu_1",
    "call_id": "k1",
    "action": {"type": "screenshot"},
    "pending_safety_checks": [],
    "status": "completed",
}
SCREEN = {"type": "input_image", "image_url": "data:image/png;base64,AAA"}
SHOWN = {"type": "computer_call_output", "call_id": "k1", "output": SCREEN}
SCREENSHOTS = [
    result([SCREEN], "k1", additional_kwargs={"type": "computer_call_output"}),
    result(SCREEN["image_url"], "k1", additional_kwargs={"type": "computer_call_output"}),
    result([{"type": "non_standard", "value": SHOWN}], "k1"),
]
COMPUTER_CALLERS = {
    "block": AIMessage([COMPUTER]),
    "v1": AIMessage(
        [{"type": "non_standard", "value": COMPUTER}], response_metadata={"output_version": "v1"}
    ),
    "v0": AIMessage([], additional_kwargs={"tool_outputs": [COMPUTER]}),
}


@pytest.mark.parametrize("screenshot", SCREENSHOTS, ids=["blocks", "text", "v1 block"])
@pytest.mark.parametrize("form", COMPUTER_CALLERS)
def test_the_result_of_a_computer_call_stays(form, screenshot):
    """The call is never listed, so its result belongs to no call; OpenAI gets both unchanged."""
    history = [H("go"), COMPUTER_CALLERS[form], screenshot, AIMessage("done"), H("x")]
    assert validate_messages(history) == []
    assert patch_messages(history).messages is history
    sent = {item.get("type") for item in payload("openai-responses", history)}
    assert sent >= {"computer_call", "computer_call_output"}
    after_repair = repaired([*history, ai("c1"), H("y")])
    assert after_repair == [*history, ai("c1"), made("c1"), H("y")]


def test_the_result_of_a_computer_call_does_not_part_a_call_from_its_results():
    """The model called both at once: the tools answer in any order."""
    both = ai("c1", "c2", content=[COMPUTER])
    screen, first, second = SCREENSHOTS[0], result("r", "c1"), result("s", "c2")
    history = [both, screen, first, second]
    assert patch_messages(history).messages is history
    assert not patched([both, first, screen])
    assert repaired([both, screen, first, H("x")]) == [both, first, made("c2"), screen, H("x")]


def test_only_what_a_computer_call_before_it_asked_for_stays():
    """No id, another id, a call that comes later: an orphan. A client's call has its result."""
    screen = SCREENSHOTS[0]
    nameless = AIMessage([{**COMPUTER, "call_id": None}])
    assert repaired([H("x"), screen, COMPUTER_CALLERS["block"]]) == [
        H("x"),
        COMPUTER_CALLERS["block"],
    ]
    assert repaired([nameless, result("r", "")]) == [nameless]
    assert repaired([COMPUTER_CALLERS["block"], result("r", "k2")]) == [COMPUTER_CALLERS["block"]]
    history = [COMPUTER_CALLERS["block"], screen, ai("k1"), result("r", "k1"), H("x")]
    assert patch_messages(history).messages is history


@pytest.mark.parametrize("form", COMPUTER_CALLERS)
def test_a_computer_call_without_a_result_is_left_alone(form):
    """There is no screenshot that could replace it."""
    history = [H("go"), COMPUTER_CALLERS[form], H("x")]
    assert patch_messages(history).messages is history


def test_r26_thoughts_and_signatures_are_byte_identical():
    """A new id changes in the call, its block and the signatures' map, and nothing else does."""
    signatures = "__gemini_function_call_thought_signatures__"
    content = [THINKING, REASONING, {**TOOL_USE, "id": "no good", "cache": {"x": 1}}]
    history = [
        AIMessage(
            content,
            tool_calls=[call_of("t", "no good", {"a": 1})],
            additional_kwargs={signatures: {"no good": "s=="}, "other": {"x": "no good"}},
        ),
        result("r", "no good"),
    ]
    after_repair, answer = repaired(history)
    (call,) = after_repair.tool_calls
    assert call["id"] != "no good"
    assert after_repair == AIMessage(
        [THINKING, REASONING, {**TOOL_USE, "id": call["id"], "cache": {"x": 1}}],
        tool_calls=[call_of("t", call["id"], {"a": 1})],
        additional_kwargs={signatures: {call["id"]: "s=="}, "other": {"x": "no good"}},
    )
    assert answer == result("r", call["id"])


def test_r26_the_signature_of_an_id_that_two_calls_share_is_of_both():
    """The call that keeps the id keeps its signature too."""
    signatures = "__gemini_function_call_thought_signatures__"
    history = [ai("c1", ("u", "c1"), id="a1", additional_kwargs={signatures: {"c1": "s=="}})]
    after_repair, *_ = repaired(history)
    new_id = after_repair.tool_calls[1]["id"]
    assert after_repair.additional_kwargs == {signatures: {"c1": "s==", new_id: "s=="}}


@pytest.mark.parametrize("content", [[THINKING, TOOL_USE], [REASONING, FUNCTION_CALL]])
def test_r26_thoughts_of_a_dangling_call_are_byte_identical(content):
    """Only a result is added: the message with the thoughts is the same object."""
    message = AIMessage(content, tool_calls=[call_of("t", "c1", {"a": 1})])
    patch = patch_messages([message])
    assert patch.messages[0] is message
    assert without_made_ids(patch.messages[1:]) == [made("c1")]


@pytest.mark.parametrize("kind", ["server_tool_use", "web_search_call", "mcp_call"])
def test_r27_server_side_tools_get_no_result(kind):
    """They are the provider's own affair."""
    block = {"type": kind, "id": "srvtoolu_1", "name": "web_search", "input": {}}
    history = [H("q"), AIMessage([block]), H("z")]
    assert patch_messages(history).messages is history


@pytest.mark.parametrize("value", ["x", None, {"type": "mystery"}, {"no": "type"}])
def test_f27_unknown_blocks_are_left_alone(value):
    """A `non_standard` block may hold anything."""
    history = [AIMessage([{"type": "non_standard", "value": value}, {"no": "type"}])]
    assert patch_messages(history).messages is history


# --- results in the wrong place --------------------------------------------------------


@pytest.mark.parametrize(
    "between", [H("steer"), SystemMessage("be brief"), AIMessage("hm"), AIMessage([{"type": "x"}])]
)
def test_r06_a_message_between_call_and_result(between):
    """The real result is moved to its call; the message stays, behind it."""
    history = [H("1"), ai("c1"), between, result("r", "c1"), H("2")]
    assert repaired(history) == [H("1"), ai("c1"), result("r", "c1"), between, H("2")]
    assert kinds(history) == ["moved"]
    assert defects(history) == ["misplaced"]


def test_r06_a_result_before_its_call():
    """The real result is moved behind its call."""
    history = [H("1"), result("r", "c1"), ai("c1"), H("2")]
    assert repaired(history) == [H("1"), ai("c1"), result("r", "c1"), H("2")]


def test_f06_a_move_is_reported_in_full():
    """Its index, its call, and the message before and after."""
    stored = result("r", "c 1", id="x")
    history = [ai("c 1", id="a1"), H("x"), stored]
    patch = patch_messages(history)
    after_repair, answer, _ = patch.messages
    new_id = after_repair.tool_calls[0]["id"]
    assert patch.changes == (
        Change("renamed", "bad_id", 0, new_id, "t", None, history[0], after_repair),
        Change("moved", "misplaced", 2, new_id, "t", None, stored, answer),
    )
    assert answer == result("r", new_id, id="x")


def test_f06_a_human_message_that_only_carries_a_call_id_parts_results():
    """It is no result: what follows it is out of place."""
    texts = H("and?", additional_kwargs={"tool_call_id": "c1"})
    history = [ai("c1", "c2"), result("r1", "c1"), texts, result("r2", "c2")]
    assert repaired(history) == [ai("c1", "c2"), result("r1", "c1"), result("r2", "c2"), texts]


def test_r07_a_result_without_a_call():
    """It is dropped, and whole in the changes."""
    orphan = result("r", "gone", name="t", artifact={"rows": 1})
    patch = patch_messages([H("1"), orphan, H("2")])
    assert patch.messages == [H("1"), H("2")]
    assert patch.changes == (Change("dropped", "orphan", 1, "gone", "t", None, orphan, None),)
    assert patch.changes[0].before is orphan


def test_f07_trimming_cut_through_a_pair():
    """`trim_messages` leaves a window that begins with a result."""
    history = [H("q"), ai("c1"), result("r", "c1"), AIMessage("a"), H("z")]
    window = trim_messages(history, strategy="last", token_counter=len, max_tokens=3)
    assert window == history[2:]
    assert repaired(window) == [AIMessage("a"), H("z")]


def summarizer(keep):
    """The middleware, with a model that needs no network."""
    model = StrictModel(script=[AIMessage("they talked")])
    return SummarizationMiddleware(model, trigger=("messages", 4), keep=("messages", keep))


def test_r07_summarising_keeps_an_orphan():
    """The middleware looks for the call of one of the results and keeps them all."""
    history = [H("q"), ai("B"), result("a", "A"), result("b", "B"), H("z")]
    _, summary, *kept = summarizer(3).before_model({"messages": history}, None)["messages"]
    assert kept == history[1:]
    assert repaired([summary, *kept]) == [summary, history[1], *history[3:]]


def test_f07_an_agent_that_summarises_goes_on():
    """The summary is made of the repaired history, so it keeps a call with its result."""
    history = [H("q"), ai("c1"), H("steer"), result("r", "c1"), H("z")]
    model = StrictModel(script=[AIMessage("fine")])
    agent = create_agent(model, [], middleware=[summarizer(3)])
    with_patching(agent).invoke({"messages": history})
    assert [message.text for message in model.seen[0][1:]] == ["", "r", "steer", "z"]


# --- two results for one call ----------------------------------------------------------


def test_r13_two_results_for_one_call():
    """The first in place is kept: the model has answered on it."""
    later = result("r2", "c1")
    history = [H("q"), ai("c1"), result("r", "c1"), later]
    patch = patch_messages(history)
    assert patch.messages == history[:3]
    assert patch.changes == (Change("dropped", "duplicate", 3, "c1", None, None, later, None),)
    assert defects(history) == ["duplicate"]


def test_r13_a_late_real_result():
    """It takes the placeholder's place; the placeholder is whole in the changes."""
    placeholder = patch_messages([ai("c1", id="a")]).messages[1]
    history = [H("q"), ai("c1"), placeholder, H("x"), result("REAL", "c1")]
    patch = patch_messages(history)
    assert patch.messages == [H("q"), ai("c1"), result("REAL", "c1"), H("x")]
    assert [(c.kind, c.before) for c in patch.changes] == [
        ("moved", history[4]),
        ("dropped", placeholder),
    ]
    assert defects(history) == ["misplaced", "superseded"]


def test_f13_a_real_result_that_reads_like_a_placeholder_is_real():
    """The mark tells them apart, not the words."""
    texts = result(UNKNOWN.format("t", "c1"), "c1")
    history = [ai("c1"), texts, H("x"), result("later", "c1")]
    assert repaired(history) == [ai("c1"), texts, H("x")]


# --- ids -------------------------------------------------------------------------------


def test_r11_an_id_used_again_and_not_answered():
    """The first call keeps its result; the second gets a new id and a placeholder."""
    first = [H("a"), ai("t:0", id="a1"), result("r1", "t:0"), H("b")]
    history = [*first, ai("t:0", id="a2"), H("c")]
    *kept, again, answer, last = repaired(history)
    assert (kept, last) == (first, H("c"))
    assert again == ai("t:0_79da915c", id="a2")
    assert answer == made("t:0_79da915c")


def test_r11_an_id_used_again_and_answered():
    """The later occurrence is renamed with its result: two wires carry no id twice."""
    history = [
        H("a"),
        ai("t:0", id="a1"),
        result("r1", "t:0"),
        H("b"),
        ai("t:0", id="a2"),
        result("r2", "t:0", name="t", id="x"),
        H("c"),
    ]
    patch = patch_messages(history)
    assert without_made_ids(patch.messages) == [
        *history[:4],
        ai("t:0_79da915c", id="a2"),
        result("r2", "t:0_79da915c", name="t", id="x"),
        H("c"),
    ]
    assert patch.changes == (
        Change("renamed", "bad_id", 4, "t:0_79da915c", "t", None, history[4], patch.messages[4]),
    )
    assert defects(history) == ["bad_id"]


def test_f11_a_result_that_comes_late_under_the_old_id():
    """It goes to the call that was renamed from that id, and replaces its placeholder."""
    history = [ai("t:0", id="a1"), result("r1", "t:0"), H("b"), ai("t:0", id="a2"), H("c")]
    later = [*patch_messages(history).messages, result("r2", "t:0")]
    assert repaired(later) == [
        ai("t:0", id="a1"),
        result("r1", "t:0"),
        H("b"),
        ai("t:0_79da915c", id="a2"),
        result("r2", "t:0_79da915c"),
        H("c"),
    ]


def test_f11_late_results_of_several_tools_under_one_old_id():
    """Each goes to the call of its tool, also to a call that was renamed from their id."""
    names = ("slow", "wire_money", "send_email")
    calls = [{"name": name, "args": {}, "id": "call_0"} for name in names]
    history = [AIMessage("", id="a1", tool_calls=calls), H("b")]
    late = [ToolMessage(f"done: {name}", name=name, tool_call_id="call_0") for name in names]
    message, *results, _ = repaired([*patch_messages(history).messages, *late])
    assert [each.text for each in results] == [f"done: {name}" for name in names]
    assert [each.tool_call_id for each in results] == [call["id"] for call in message.tool_calls]


def test_f11_a_result_with_the_name_of_another_call_of_its_message():
    """LangGraph writes the name of a handoff into older results that have the id of its call."""
    twins = ai(("send_email", "c1"), ("transfer", "c1"), id="a1")
    sent = result("sent", "c1", name="send_email")
    message, sent, *rest = patch_messages([twins, sent, H("b")]).messages
    damaged = [message, sent.model_copy(update={"name": "transfer"}), *rest, ai("c9"), H("d")]
    results = [each for each in repaired(damaged) if isinstance(each, ToolMessage)]
    [transfer] = [r for r in results if r.tool_call_id == message.tool_calls[1]["id"]]
    assert is_placeholder(transfer)


@pytest.mark.parametrize("call_id", [None, "", "x" * 41, "with space", "släsh", "a/b"])
def test_r12_no_id_or_one_that_a_provider_refuses(call_id):
    """An id is derived, the same one each time; the result in its place is re-pointed."""
    history = [ai(call_id, id="a1"), result("r", call_id or ""), H("z")]
    after_repair, answer, _ = repaired(history)
    (call,) = after_repair.tool_calls
    assert call["id"].isascii()
    assert 1 < len(call["id"]) <= 40
    assert answer == result("r", call["id"])
    assert repaired(history) == [ai(call["id"], id="a1"), answer, H("z")]
    assert defects(history) == ["bad_id"]


def test_r12_blocks_in_a_result_that_name_the_call_are_re_pointed():
    """Those that name another call, or none, stay as they are."""
    blocks = [
        "text",
        {"type": "tool_result", "tool_use_id": "c 1"},
        {"type": "function_call_output", "call_id": "c 1"},
        {"type": "tool_result", "tool_use_id": "c2"},
    ]
    after_repair, answer = repaired([ai("c 1"), result(blocks, "c 1")])
    new_id = after_repair.tool_calls[0]["id"]
    pointed = [
        "text",
        {"type": "tool_result", "tool_use_id": new_id},
        {"type": "function_call_output", "call_id": new_id},
        blocks[3],
    ]
    assert answer == result(pointed, new_id)


@pytest.mark.parametrize("call_id", ["c", "A" * 40, "call_1", "a.b:c-d", "functions.search:0"])
def test_f12_ids_that_every_wire_carries_stay(call_id):
    """Kimi's ids have dots and colons; Bedrock takes them too."""
    history = [ai(call_id), result("r", call_id)]
    assert patch_messages(history).messages is history


def test_r12_two_calls_with_one_id_in_a_message():
    """Results are taken in call order; the second call gets an id of its own."""
    history = [ai("c1", ("u", "c1"), id="a1"), result("r1", "c1"), result("r2", "c1"), H("z")]
    after_repair, *answers, _ = repaired(history)
    first, second = (call["id"] for call in after_repair.tool_calls)
    assert first == "c1"
    assert answers == [result("r1", first), result("r2", second)]
    assert after_repair == ai(first, ("u", second), id="a1")


def test_f12_two_calls_with_one_id_in_two_blocks():
    """Call and block are renamed in pairs."""
    blocks = [{**TOOL_USE, "input": {"k": 1}}, {**TOOL_USE, "input": {"k": 2}}]
    calls = [call_of("t", "c1", {"k": 1}), call_of("t", "c1", {"k": 2})]
    after_repair, *_ = repaired([AIMessage(blocks, tool_calls=calls)])
    new_id = after_repair.tool_calls[1]["id"]
    assert new_id != "c1"
    assert after_repair == AIMessage(
        [blocks[0], {**blocks[1], "id": new_id}], tool_calls=[calls[0], {**calls[1], "id": new_id}]
    )


def test_r12_a_result_under_the_id_of_a_sibling():
    """No guess: the second result is a duplicate, and the sibling's call has no result."""
    history = [ai("c1", ("u", "c2")), result("r1", "c1"), result("r2", "c1")]
    assert repaired(history) == [ai("c1", ("u", "c2")), result("r1", "c1"), made("c2", name="u")]
    assert kinds(history) == ["inserted", "dropped"]


def test_f12_messages_without_ids_get_unlike_call_ids():
    """Equal messages without ids are distinguished."""
    repaired_once = repaired([ai(None), ai(None), ai(None)])
    ids = [call["id"] for m in repaired_once if isinstance(m, AIMessage) for call in m.tool_calls]
    assert len(set(ids)) == 3


# --- names -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("", "unknown_tool"),
        ("wire money", "wire_money"),
        ("functions.search", "functions_search"),
        ("检索", "__"),
        ("n" * 70, "n" * 64),
        ("{0.__class__}", "_0___class___"),
        ("a\x1b[31m\n", "a__31m_"),
    ],
)
def test_a_name_that_providers_refuse(name, good):
    """It is cut and cleaned in the call and in its result."""
    history = [ai((name, "c1")), result("r", "c1", name=name)]
    assert repaired(history) == [ai((good, "c1")), result("r", "c1", name=good)]
    assert kinds(history) == ["renamed"]
    assert defects(history) == ["bad_name"]


def test_a_result_with_a_name_of_its_own_that_providers_refuse():
    """Only the result's name is bad: it takes its call's."""
    history = [ai("c1"), result("r", "c1", name="no good")]
    assert repaired(history) == [ai("c1"), result("r", "c1", name="t")]
    assert kinds(history) == ["renamed"]


def test_a_result_with_a_good_name_of_its_own_keeps_it():
    """Another name than the call's is no damage."""
    history = [ai("c1"), result("r", "c1", name="alias")]
    assert patch_messages(history).messages is history


# --- results in the wrong role ---------------------------------------------------------


@pytest.mark.parametrize(
    "expected",
    [
        FunctionMessage(name="t", content="r", id="x"),
        ChatMessage(role="tool", content="r", id="x", name="t"),
        ChatMessage(role="function", content="r", id="x", additional_kwargs={"name": "t"}),
    ],
)
def test_r29_a_result_that_names_its_tool(expected):
    """It becomes a `ToolMessage` beside its call, under its own id."""
    history = [H("q"), ai("c1"), expected, H("z")]
    (_, _, answer, _) = repaired(history)
    assert (answer.content, answer.tool_call_id, answer.id) == ("r", "c1", "x")
    assert repaired(history) == [H("q"), ai("c1"), answer, H("z")]
    assert isinstance(answer, ToolMessage)
    assert kinds(history) == ["converted"]
    assert defects(history) == ["wrong_role"]


@pytest.mark.parametrize(
    "expected",
    [
        FunctionMessage(name="u", content="r"),
        ChatMessage(role="tool", content="r", name="u"),
        ChatMessage(role="tool", content="r", additional_kwargs={"name": "u"}),
    ],
)
def test_f29_a_result_goes_to_the_call_of_the_tool_that_it_names(expected):
    """Not to the first call that is open."""
    history = [ai("c1", ("u", "c2")), expected]
    after_repair, answer, placeholder = repaired(history)
    assert (after_repair, placeholder) == (ai("c1", ("u", "c2")), made("c1"))
    assert (answer.content, answer.tool_call_id, answer.id) == ("r", "c2", "result")


@pytest.mark.parametrize("extra", [{}, {"name": 7}, {"tool_call_id": 7}, {"tool_call_id": None}])
def test_f29_a_result_that_names_nothing_goes_to_the_call_that_is_open(extra):
    """What is no id and no name is not taken for one."""
    texts = ChatMessage(role="tool", content="r", id="x", additional_kwargs=extra)
    history = [ai("c0"), result("r0", "c0"), ai("c1"), texts]
    assert repaired(history) == [*history[:3], result("r", "c1", id="x", additional_kwargs=extra)]


def test_f29_a_result_without_a_call_is_dropped():
    """Also in the wrong role, whether it names a call or not."""
    named = ChatMessage(role="tool", content="r", additional_kwargs={"tool_call_id": "gone"})
    unnamed = FunctionMessage(name="t", content="r")
    patch = patch_messages([H("q"), named, unnamed])
    assert patch.messages == [H("q")]
    assert patch.changes == (
        Change("dropped", "orphan", 1, "gone", None, None, named, None),
        Change("dropped", "orphan", 2, "", "t", None, unnamed, None),
    )


def test_f29_a_chat_message_that_names_its_call():
    """It goes to that call, wherever the call is."""
    texts = ChatMessage(role="tool", content="r2", additional_kwargs={"tool_call_id": "c2"})
    history = [ai("c1", "c2"), H("x"), texts]
    assert repaired(history) == [
        ai("c1", "c2"),
        made("c1"),
        result("r2", "c2", id="result", additional_kwargs={"tool_call_id": "c2"}),
        H("x"),
    ]


def test_f29_a_conversion_keeps_all_that_a_message_carries():
    """Name, id, metadata and whatever an application wrote beside it."""
    extra = {"additional_kwargs": {"a": 1}, "response_metadata": {"b": 2}}
    texts = FunctionMessage(name="t", content="r", id="x", **extra)
    patch = patch_messages([ai("c1"), texts])
    assert patch.messages == [ai("c1"), result("r", "c1", name="t", id="x", **extra)]
    assert patch.changes == (
        Change("converted", "wrong_role", 1, "c1", "t", None, texts, patch.messages[1]),
    )


def test_f29_a_chat_message_in_another_role_stays():
    """A critic or a narrator is no tool."""
    history = [H("q"), ChatMessage(role="critic", content="meh"), H("z")]
    assert patch_messages(history).messages is history


def test_f29_result_blocks_of_a_human_message():
    """Each becomes the result of its call; what else the message says stays, under its id."""
    text = {"type": "text", "text": "go on"}
    texts = H(
        [
            {"type": "tool_result", "tool_use_id": "c1", "content": "r1"},
            {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True},
            text,
        ],
        id="h",
    )
    history = [ai("c1", "c2"), texts]
    patch = patch_messages(history)
    assert without_made_ids(patch.messages) == [
        ai("c1", "c2"),
        result("r1", "c1", id="result"),
        result("no", "c2", id="result", status="error"),
        H([text], id="h"),
    ]
    assert patch.messages[1].id != patch.messages[2].id
    assert [(change.kind, change.before) for change in patch.changes] == [("converted", texts)] * 2


@pytest.mark.parametrize(
    ("stored", "content"),
    [
        (None, ""),
        ([{"type": "text", "text": "r"}], [{"type": "text", "text": "r"}]),
        ({"a": 1}, "{'a': 1}"),
        ([1], "[1]"),
    ],
)
def test_f29_result_blocks_may_hold_anything(stored, content):
    """What a `ToolMessage` cannot hold is kept as text."""
    texts = H([{"type": "tool_result", "tool_use_id": "c1", "content": stored}])
    assert repaired([ai("c1"), texts]) == [ai("c1"), result(content, "c1", id="result")]


def test_f29_a_human_message_that_carries_a_call_id():
    """It is the result if that call has no other."""
    texts = H("r", id="h", additional_kwargs={"tool_call_id": "c1"})
    assert repaired([ai("c1"), texts, H("z")]) == [
        ai("c1"),
        result("r", "c1", id="h", additional_kwargs={"tool_call_id": "c1"}),
        H("z"),
    ]
    answered = [ai("c1"), result("real", "c1"), texts]
    assert patch_messages(answered).messages is answered


# --- a wrong-role loop (f29): a model that reads no result calls the tool for ever ------


class Caller(StrictModel):
    """Calls its tools until it has read their results; it refuses nothing."""

    tools: int
    calls: int = 0

    def _next(self, messages):
        named = {c["id"]: c["name"] for m in messages if m.type == "ai" for c in m.tool_calls}
        answered = {named[message.tool_call_id] for message in messages if message.type == "tool"}
        unanswered = [f"t{k}" for k in range(self.tools) if f"t{k}" not in answered]
        self.calls += bool(unanswered)
        calls = [call_of(name, f"c{self.calls}-{name}") for name in unanswered]
        return AIMessage("" if unanswered else "done", tool_calls=calls)


def as_function_messages(calls, say):
    """What an agent of 2023 writes."""
    return [FunctionMessage(name=call["name"], content=say(call)) for call in calls]


def as_result_blocks(calls, say):
    """What Anthropic's own API takes, in one human message."""
    blocks = [
        {"type": "tool_result", "tool_use_id": call["id"], "content": say(call)} for call in calls
    ]
    return [HumanMessage(blocks)]


def as_chat_messages(calls, say):
    """What a home-made converter writes."""
    return [
        ChatMessage(role="tool", content=say(call), additional_kwargs={"tool_call_id": call["id"]})
        for call in calls
    ]


def as_human_messages(calls, say):
    """What a client writes that knows two roles only."""
    return [HumanMessage(say(c), additional_kwargs={"tool_call_id": c["id"]}) for c in calls]


def fine(call):
    """A tool that runs."""
    return f"{call['name']} ran"


def raising(call):
    """A tool that raises, in a node that says so."""
    try:
        return 1 / 0
    except ZeroDivisionError as error:
        return f"{call['name']} failed: {error!r}"


def react_loop(model, answer, say):
    """The agent of LangGraph's tutorial, with a tool node that answers in another role."""

    def tools(state):
        return {"messages": answer(state["messages"][-1].tool_calls, say)}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", tools)
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=InMemorySaver())


ROLES = [as_function_messages, as_result_blocks, as_chat_messages, as_human_messages]


@pytest.mark.parametrize(
    ("answer", "count", "say", "asynchronous"),
    in_turn(ROLES, [1, 3, 3, 1], [fine, raising], [False, False, True, True]),
)
async def test_f29_a_wrong_role_loop_ends_after_one_call(answer, count, say, *, asynchronous):
    """Unpatched the model calls until the recursion limit; patched it reads the result and ends.

    The state holds results in the right role then, and the next turn calls nothing again.
    """
    config = {"recursion_limit": 12, "configurable": {"thread_id": "1"}}

    async def run(graph, text):
        value = {"messages": text}
        out = await graph.ainvoke(value, config) if asynchronous else graph.invoke(value, config)
        return out["messages"]

    loop = Caller(script=[], tools=count)
    with pytest.raises(GraphRecursionError):
        await run(react_loop(loop, answer, say), "go")
    assert loop.calls == 6
    model = Caller(script=[], tools=count)
    graph = with_patching(react_loop(model, answer, say))
    messages = await run(graph, "go")
    assert model.calls == 1
    refuse(await run(graph, "again?"))
    assert model.calls == 1
    assert [(m.type, m.text, getattr(m, "tool_call_id", None)) for m in messages] == [
        ("human", "go", None),
        ("ai", "", None),
        *(("tool", say({"name": f"t{k}"}), f"c1-t{k}") for k in range(count)),
        ("ai", "done", None),
    ]


# --- evidence --------------------------------------------------------------------------


def test_f02_evidence_of_a_real_result():
    """It is written beside its call, as it is."""
    real = result("sent to bob", "c1", name="t", id="x", artifact={"a": 1})
    history = [H("q"), ai("c1", "c2", id="a1"), H("never mind")]
    evidence = {(1, 0): Finding(result=real)}
    assert repaired(history, evidence=evidence) == [
        H("q"),
        history[1],
        real,
        made("c2"),
        H("never mind"),
    ]
    assert kinds(history, evidence=evidence) == ["recovered", "inserted"]


def test_f02_a_recovered_result_without_an_id_gets_one():
    """A message without an id could not be written into a thread twice alike."""
    history = [ai("c1", id="a1")]
    evidence = {(0, 0): Finding(result=result("r", "c1"))}
    assert repaired(history, evidence=evidence) == [
        ai("c1", id="a1"),
        result("r", "c1", id="result"),
    ]
    first, second = (patch_messages(history, evidence=evidence).messages[1] for _ in range(2))
    assert first.id == second.id


def test_r36_the_id_of_a_result_is_made_of_message_call_and_ordinal():
    """The same in every process; another for every other call."""
    calls = ai("c1", ("u", "c1"), id="a1")
    blocks = [{"type": "tool_result", "tool_use_id": "c1", "content": "r"}] * 2
    answers = patch_messages([calls, H(blocks), ai("c2", id="a2")]).messages[1:3]
    assert [answer.id for answer in answers] == [
        "result-a94edda4db03e632d1eb0f4de9774861",
        "result-624ab9df0439ffd92ff50832c70aec21",
    ]


def test_f02_a_recovered_result_under_an_id_that_is_taken():
    """Under that id it would replace another message of the thread."""
    history = [H("q", id="x"), ai("c1", id="a1")]
    evidence = {(1, 0): Finding(result=result("r", "c1", id="x"))}
    assert repaired(history, evidence=evidence) == [*history, result("r", "c1", id="result")]


def test_f03_each_cause_has_its_text():
    """Finished, waiting, failed and not recorded have different results."""
    history = [ai(("a", "c1"), ("b", "c2"), ("d", "c3"), ("e", "c4"), id="a1"), H("never mind")]
    evidence = {
        (0, 0): Finding(result=result("done", "c1", id="x")),
        (0, 1): Finding("awaiting_input"),
        (0, 2): Finding("failed", error="RuntimeError('kaput')"),
    }
    patch = patch_messages(history, evidence=evidence)
    assert without_made_ids(patch.messages) == [
        history[0],
        result("done", "c1", id="x"),
        made("c2", WAITED, "awaiting_input", "b"),
        made("c3", FAILED.format("d", "c3", "RuntimeError('kaput')"), "failed", "d"),
        made("c4", name="e"),
        H("never mind"),
    ]
    assert [change.cause for change in patch.changes] == [
        None,
        "awaiting_input",
        "failed",
        "unknown",
    ]


@pytest.mark.parametrize(
    ("behind", "text"),
    [
        ([], WAITED_UNTIL_ENDED),
        ([SystemMessage("s")], WAITED_UNTIL_ENDED),
        ([AIMessage("a"), H("h")], WAITED_UNTIL_ENDED),
        ([H("h")], WAITED),
        ([SystemMessage("s"), H("h"), AIMessage("a")], WAITED),
        ([{"role": "user", "content": "h"}], WAITED),
    ],
)
def test_f03_a_call_was_cancelled_only_if_a_human_message_came(behind, text):
    """What follows the call, before the model's next turn, decides on the text."""
    evidence = {(0, 0): Finding("awaiting_input")}
    patch = patch_messages([ai("c1", id="a1"), *behind], evidence=evidence)
    assert without_made_ids(patch.messages[1:2]) == [made("c1", text, "awaiting_input")]


def test_evidence_replaces_our_placeholder():
    """A real result replaces the placeholder of an earlier repair."""
    first = patch_messages([ai("c1", id="a1"), H("x")])
    evidence = {(0, 0): Finding(result=result("r", "c1", id="x"))}
    patch = patch_messages(first.messages, evidence=evidence)
    assert patch.messages == [ai("c1", id="a1"), result("r", "c1", id="x"), H("x")]
    assert [(change.kind, change.before) for change in patch.changes] == [
        ("recovered", first.messages[1])
    ]
    assert patch_messages(patch.messages, evidence=evidence).messages is patch.messages


def test_evidence_under_the_id_of_our_placeholder():
    """A result that took the placeholder's place in another branch keeps its id."""
    first = patch_messages([ai("c1", id="a1")])
    real = result("r", "c1", id=first.messages[1].id)
    patch = patch_messages(first.messages, evidence={(0, 0): Finding(result=real)})
    assert patch.messages == [ai("c1", id="a1"), real]
    assert patch.changes == (
        Change("recovered", "superseded", 0, "c1", "t", None, first.messages[1], patch.messages[1]),
    )


def test_evidence_of_a_cause_replaces_our_placeholder_that_knew_none():
    """A thread that was repaired without its checkpointer gets the recorded result later, once."""
    first = patch_messages([ai("c1", "c2", id="a1"), result("r2", "c2"), H("x")])
    evidence = {(0, 0): Finding("failed", error="e")}
    patch = patch_messages(first.messages, evidence=evidence)
    reported = made("c1", FAILED.format("t", "c1", "e"), "failed")
    assert without_made_ids(patch.messages) == [
        ai("c1", "c2", id="a1"),
        reported,
        result("r2", "c2"),
        H("x"),
    ]
    assert [(c.kind, c.cause, c.before) for c in patch.changes] == [
        ("inserted", "failed", first.messages[1])
    ]
    assert patch_messages(patch.messages, evidence=evidence).messages is patch.messages


@pytest.mark.parametrize("recorded", [Finding("failed", error="e"), Finding("awaiting_input")])
def test_evidence_that_is_no_result_leaves_our_placeholder_that_knew_a_cause(recorded):
    """A stored placeholder keeps its text: another text would break the prompt cache."""
    evidence = {(0, 0): Finding("failed", error="first")}
    history = patch_messages([ai("c1", id="a1"), H("x")], evidence=evidence).messages
    assert patch_messages(history, evidence={(0, 0): recorded}).messages is history


def test_evidence_that_nothing_is_known_leaves_our_placeholder():
    """It says no more than the placeholder does: the second pass does nothing."""
    evidence = {(0, 0): Finding("unknown")}
    history = patch_messages([ai("c1", id="a1"), H("x")], evidence=evidence).messages
    assert patch_messages(history, evidence=evidence).messages is history


def test_evidence_does_not_replace_a_real_result():
    """A real result is never replaced."""
    history = [ai("c1", id="a1"), result("real", "c1")]
    evidence = {(0, 0): Finding(result=result("recorded", "c1"))}
    assert patch_messages(history, evidence=evidence).messages is history


def test_evidence_that_is_a_placeholder_is_none():
    """A placeholder in a checkpoint is no result."""
    placeholder = patch_messages([ai("c1", id="a1")]).messages[1]
    history = [ai("c1", id="a1")]
    patch = patch_messages(history, evidence={(0, 0): Finding(result=placeholder)})
    assert [change.kind for change in patch.changes] == ["inserted"]


def test_evidence_of_a_call_that_is_renamed():
    """The result has the new id."""
    history = [ai("c1", id="a0"), result("r0", "c1"), ai("c1", id="a1")]
    evidence = {(2, 0): Finding(result=result("r1", "c1", id="x"))}
    *_, again, answer = repaired(history, evidence=evidence)
    assert again.tool_calls[0]["id"] != "c1"
    assert answer == result("r1", again.tool_calls[0]["id"], id="x")


def test_unanswered_names_the_calls_to_search_for():
    """Not those with a final placeholder; those of others only if they are to be replaced."""
    first, second = ai("c1", "c2", id="a1"), ai("c3", id="a2")
    history = [first, result("r", "c1"), *patch_messages([second]).messages]

    def keys(messages, **options):
        return [call.key for call in read_history(messages, **options).unanswered]

    assert keys(history) == [(0, 1)]
    foreign = [second, result(DEEPAGENTS[0], "c3")]
    assert keys(foreign) == []
    assert keys(foreign, replace_foreign=True) == [(0, 0)]


# --- placeholders of others ------------------------------------------------------------

DEEPAGENTS = [
    text.format("t", "c1")
    for text in (DEEPAGENTS_CANCELLED, DEEPAGENTS_MALFORMED, DEEPAGENTS_INCOMPLETE)
]
FOREIGN = [
    *(result(text, "c1", id="x", status="error") for text in DEEPAGENTS),
    result("?", "c1", id="x", additional_kwargs={"orphan_tool_call_placeholder": True}),
]


@pytest.mark.parametrize("foreign", FOREIGN)
def test_placeholders_of_others_are_results_unless_asked(foreign):
    """By default nothing of another system's is touched."""
    history = [ai("c1", id="a1"), foreign, H("x")]
    assert patch_messages(history).messages is history


@pytest.mark.parametrize("foreign", FOREIGN)
def test_placeholders_of_others_are_replaced(foreign):
    """With `replace_foreign` the true text, or the real result, takes their place."""
    history = [ai("c1", id="a1"), foreign, H("x")]
    evidence = {(0, 0): Finding(result=result("r", "c1", id="y"))}
    assert repaired(history, replace_foreign=True) == [ai("c1", id="a1"), made("c1"), H("x")]
    assert repaired(history, replace_foreign=True, evidence=evidence) == [
        ai("c1", id="a1"),
        result("r", "c1", id="y"),
        H("x"),
    ]
    (change,) = patch_messages(history, replace_foreign=True).changes
    assert (change.kind, change.before) == ("inserted", foreign)


def test_our_placeholder_in_the_words_of_another_is_ours():
    """The mark counts: it is not replaced again and again."""
    history = [ai("c1", id="a1"), H("x")]
    patch = patch_messages(history, placeholder=DEEPAGENTS[0])
    assert patch.messages[1].content == DEEPAGENTS[0]
    assert patch_messages(patch.messages, replace_foreign=True).messages is patch.messages


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_real_result_beats_the_placeholder_of_another(foreign):
    """The late real result is taken if foreign placeholders count as such."""
    history = [ai("c1", id="a1"), foreign, H("x"), result("r", "c1")]
    assert repaired(history, replace_foreign=True) == [ai("c1", id="a1"), result("r", "c1"), H("x")]


@pytest.mark.parametrize(
    "expected",
    [
        result(f"{DEEPAGENTS[0]} Or was it?", "c1"),
        result(f"Note: {DEEPAGENTS[0]}", "c1"),
        result([{"type": "text", "text": DEEPAGENTS[0]}], "c1"),
        result("?", "c1", additional_kwargs={"orphan_tool_call_placeholder": False}),
    ],
)
def test_results_that_only_quote_a_placeholder_stay(expected):
    """The whole text or the mark, nothing less."""
    history = [ai("c1"), expected]
    assert patch_messages(history, replace_foreign=True).messages is history


# --- determinism, values ---------------------------------------------------------------


def test_r36_a_repair_gives_the_same_bytes_in_every_process():
    """Ids of placeholders and calls are made of the history: prompt caches stay warm."""
    messages = patch_messages([ai("c1", None, id="a1"), H("x")]).messages
    assert [message.id for message in messages] == [
        "a1",
        "patch-b0548b6649fd775f9d4da1d00f4d5551",
        "patch-79541bcff28f206dbd51ac532a5a8117",
        None,
    ]
    assert [call["id"] for call in messages[0].tool_calls] == ["c1", "call_5bb3992f"]


def test_what_is_wrong_is_a_value():
    """The change that repairs it: frozen and comparable."""
    (change,) = validate_messages([ai("c1")])
    assert (change.defect, change.index, change.tool_call_id) == ("dangling", 0, "c1")
    assert change == patch_messages([ai("c1")]).changes[0]
    with pytest.raises(AttributeError):
        change.kind = "dropped"


def test_patches_are_values():
    """Printable, frozen, and JSON with whole messages."""
    history = [ai("c1", id="a1"), result("r", "gone", id="x")]
    patch = patch_messages(history)
    assert str(patch) == "inserted 't' 'c1' (unknown); dropped 'result' 'gone'"
    assert bool(patch)
    reported = json.loads(json.dumps(patch.to_dict()))
    assert reported["before"] == [message.model_dump() for message in history]
    assert reported["messages"] == [message.model_dump() for message in patch.messages]
    assert reported["changes"] == [
        {
            "kind": "inserted",
            "defect": "dangling",
            "index": 0,
            "tool_call_id": "c1",
            "name": "t",
            "cause": "unknown",
            "before": None,
            "after": patch.messages[1].model_dump(),
        },
        {
            "kind": "dropped",
            "defect": "orphan",
            "index": 1,
            "tool_call_id": "gone",
            "name": None,
            "cause": None,
            "before": history[1].model_dump(),
            "after": None,
        },
    ]
    with pytest.raises(AttributeError):
        patch.messages = []


def test_a_patch_of_nothing_is_false():
    """It reports no change, and returns the list that it got."""
    patch = patch_messages([H("q")])
    assert not patch
    assert str(patch) == "nothing to repair"
    assert patch == Patch([H("q")], (), [H("q")])


def test_a_patch_of_dicts_has_json_values_too():
    """A valid history of dicts comes back as messages, in `to_dict` too."""
    patch = patch_messages([{"role": "user", "content": "q"}])
    assert patch.messages == [H("q")]
    assert patch.to_dict() == patch_messages([H("q")]).to_dict()


@pytest.mark.parametrize("as_a", [list, tuple])
def test_dicts_and_tuples_are_messages(as_a):
    """What LangGraph accepts as messages is accepted, and repaired."""
    history = as_a(
        [
            ("user", "q"),
            {"role": "assistant", "content": "", "tool_calls": [call_of("t", "c1")]},
            {"role": "user", "content": "z"},
        ]
    )
    assert repaired(history) == [H("q"), ai("c1"), made("c1"), H("z")]


@pytest.mark.parametrize(
    "history",
    [
        (H("q"), ai("c1"), result("r", "c1")),
        [("user", "q"), ai("c1"), result("r", "c1")],
        [{"role": "user", "content": "q"}, ai("c1"), result("r", "c1")],
    ],
)
def test_a_valid_history_that_is_no_list_of_messages_comes_back_converted(history):
    """`patch.messages` is a list of messages in every case."""
    patch = patch_messages(history)
    assert patch.messages == [H("q"), ai("c1"), result("r", "c1")]
    assert patch.changes == ()


# --- bad input -------------------------------------------------------------------------


@pytest.mark.parametrize("function", [patch_messages, validate_messages])
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, r"None is no list of messages: expected a list of LangChain messages"),
        ("hello", r"'hello' is no list of messages"),
        (b"hello", r"b'hello' is no list of messages"),
        ({"messages": []}, r"\{'messages': \[\]\} is no list of messages"),
        (7, r"7 is no list of messages"),
        ([H("q"), 7], r"holds something that is no message: expected a list of LangChain messages"),
        ([object], r"holds something that is no message"),
        ([{"role": "nobody", "content": "x"}], r"holds something that is no message"),
        ((7,), r"\(7,\) holds something that is no message"),
    ],
)
def test_what_is_no_history_is_refused(function, value, words):
    """The error is a `TypeError` of the package; it shows the value and what was expected."""
    with pytest.raises(MessagesError, match=words) as caught:
        function(value)
    assert isinstance(caught.value, PatchError)
    assert isinstance(caught.value, TypeError)


def test_an_error_about_a_history_is_short():
    """The value is shown, but not all of it."""
    with pytest.raises(MessagesError) as caught:
        patch_messages("x" * 10_000)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("history", [[], [ai("c1")]])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"placeholder": 7},
            r"placeholder=7: expected a text, a mapping from cause to text, or a callable",
        ),
        (
            {"placeholder": {"lost": "x"}},
            r"'lost': 'x'\}: expected a text for one of the causes awaiting_input, failed, not_st",
        ),
        ({"placeholder": {"unknown": 7}}, r"placeholder=\{'unknown': 7\}: expected a text"),
        ({"evidence": 7}, r"evidence=7: expected a mapping \(index"),
        (
            {"evidence": {("a1", "c1"): Finding()}},
            r"'a1', 'c1'.*expected \(index of the message, position of the call in it\) -> Finding",
        ),
        ({"evidence": {(0, 0): H("x")}}, r"\(0, 0\): HumanMessage.* -> Finding"),
        ({"evidence": {(0, 0): Finding("lost")}}, r"cause='lost'.* -> Finding"),
        ({"evidence": {(0, 0): Finding(result="r")}}, r"result='r'.* -> Finding"),
    ],
)
def test_what_is_no_option_is_refused(history, options, words):
    """Before anything is looked at: whether the history is damaged does not matter."""
    with pytest.raises(OptionError, match=words) as caught:
        patch_messages(history, **options)
    assert isinstance(caught.value, PatchError)
    assert isinstance(caught.value, ValueError)


# --- bugs of earlier versions ------------------------------------------------------------


def test_bug_2_a_human_message_is_not_the_result_of_a_later_call():
    """The id it carries was that of an earlier call, which it answers."""
    texts = H("r1", id="h", additional_kwargs={"tool_call_id": "c1"})
    history = [ai("c1", id="a"), texts, H("z"), ai("c1", id="b"), H("y")]
    *first, again, answer, last = repaired(history)
    new_id = again.tool_calls[0]["id"]
    assert first == [
        ai("c1", id="a"),
        result("r1", "c1", id="h", additional_kwargs={"tool_call_id": "c1"}),
        H("z"),
    ]
    assert [again, answer, last] == [ai(new_id, id="b"), made(new_id), H("y")]


def test_bug_3_a_result_without_an_id_does_not_take_a_siblings_place():
    """Results that name their call come first, wherever they stand."""
    history = [ai("c1", "c2"), FunctionMessage(name="t", content="r2", id="x"), result("r1", "c1")]
    assert repaired(history) == [
        ai("c1", "c2"),
        result("r2", "c2", name="t", id="x"),
        result("r1", "c1"),
    ]


def test_bug_4_a_message_that_is_left_over_carries_no_call_id():
    """Or the second pass would take the rest for a result."""
    text = {"type": "text", "text": "x"}
    texts = H(
        [{"type": "tool_result", "tool_use_id": "c1", "content": "r1"}, text],
        id="h",
        additional_kwargs={"tool_call_id": "c2", "other": 1},
    )
    assert repaired([ai("c1", ("u", "c2")), texts]) == [
        ai("c1", ("u", "c2")),
        result("r1", "c1", id="result"),
        made("c2", name="u"),
        H([text], id="h", additional_kwargs={"other": 1}),
    ]


def test_bug_6_a_placeholder_is_not_given_to_a_later_call():
    """What it says is true of its own call alone."""
    evidence = {(0, 0): Finding("awaiting_input")}
    old = patch_messages([ai("c1", id="a"), H("x")], evidence=evidence).messages[1]
    patch = patch_messages([old, H("n"), ai("c1", id="b"), H("y")])
    assert without_made_ids(patch.messages) == [H("n"), ai("c1", id="b"), made("c1"), H("y")]
    assert [change.kind for change in patch.changes] == ["dropped", "inserted"]


class Unspeakable:
    """It has no text."""

    def __repr__(self):
        """Fail."""
        raise ValueError


class ContraryClass(dict):
    """A dict that raises whatever it is asked."""

    __class__ = property(lambda _: 1 / 0)
    __iter__ = __len__ = items = keys = __repr__ = lambda _: 1 / 0


class Held(BaseModel):
    """A model that holds anything, even itself."""

    value: Any = None


def _cycle():
    stored = []
    stored.append(stored)
    return stored


def _cycle_of_models():
    stored = Held()
    stored.value = stored
    return stored


def _abyss():
    stored = []
    for _ in range(10_000):
        stored = [stored]
    return stored


@pytest.mark.parametrize(
    ("thing", "shown"),
    [
        ({(1, 2): 3, b"k": {DAY: 4}}, {"1,2": 3, "aw==": {str(DAY): 4}}),
        ({1: 1, None: 2, 2.5: 3}, {"1": 1, "None": 2, "2.5": 3}),
        ([Unspeakable(), {1}], ["<Unserializable Unspeakable object>", [1]]),
        ([10**6000, "\ud800", b"\xff", (1,)], ["<int>", "\ud800", "_w==", [1]]),
        ([Held(value=DAY)], [{"value": str(DAY)}]),
        ({"\ud800": _cycle(), (1,): 2}, {"\ud800": ["<list>"], "[1]": 2}),
        (ContraryClass(), {}),
        (_cycle(), ...),
        (_cycle_of_models(), ...),
        (Held(value=_cycle()), ...),
        (_abyss(), ...),
    ],
    ids=["keys", "json keys", "unspeakable", "values", "model", "in part", "contrary", *"abcd"],
)
def test_a_patch_has_json_values_whatever_an_artifact_holds(thing, shown):
    """Keys of any type, cycles, depth: neither the values nor the page of a notebook raise."""
    patch = patch_messages([H("x"), result("r", "gone", artifact=thing)])
    values = patch.to_dict()
    assert json.loads(json.dumps(values)) == values
    assert shown in (..., values["changes"][0]["before"]["artifact"])
    assert "gone" in patch._repr_html_()


def test_a_part_without_json_values_leaves_the_rest_of_its_message_whole():
    """The call keeps its name and id, and the message keeps its other fields."""
    args = {"q": _abyss(), "to": "bob"}
    message = ai("c1", id="a1").model_copy(update={"tool_calls": [call_of("t", "c1", args)]})
    shown = patch_messages([message]).to_dict()["before"][0]
    whole = message.model_copy(update={"tool_calls": [call_of("t", "c1", {})]}).model_dump()
    assert shown == whole | {"tool_calls": [call_of("t", "c1", "<dict>")]}


@pytest.mark.parametrize(
    ("args", "meant"), [('{"a": 1}', {"a": 1}), (None, {}), ("", {}), ("{", {}), (7, {})]
)
def test_bug_9_listed_arguments_that_are_no_dict(args, meant):
    """A checkpoint of an old version may hold them as text."""
    entry = {"name": "t", "args": args, "id": "c1", "type": "tool_call"}
    message = ai("c1").model_copy(update={"tool_calls": [entry]})
    after_repair = repaired([message, result("r", "c1")])
    assert after_repair == [
        AIMessage("", tool_calls=[call_of("t", "c1", meant)]),
        result("r", "c1"),
    ]


class Block(dict):
    """A content block of a class of its own."""


def test_bug_13_a_block_of_another_class_is_a_block():
    """A dict is a dict: calls and results in it are found."""
    call, texts = Block(TOOL_USE), Block(type="tool_result", tool_use_id="c1", content="r")
    unlisted = AIMessage("").model_copy(update={"content": [call]})
    answer = H("").model_copy(update={"content": [texts]})
    assert repaired([unlisted, answer]) == [
        AIMessage([TOOL_USE], tool_calls=[call_of("t", "c1", {"a": 1})]),
        result("r", "c1", id="result"),
    ]


def test_message_classes_of_others_are_messages():
    """Subclasses are what they are made of; a class without a family is left alone."""

    class Mine(AIMessage):
        pass

    class Strange(BaseMessage):
        type: str = "strange"

    history = [Mine("", tool_calls=[call_of("t", "c1")]), Strange(content="?")]
    assert repaired(history) == [history[0], made("c1"), history[1]]
    assert is_placeholder(patch_messages(history).messages[1])


# --- the edges of each decision: which of two, and what if there is none ------------------


@pytest.mark.parametrize("foreign", FOREIGN)
def test_validating_takes_placeholders_of_others_for_results(foreign):
    """However the history comes: a tuple is read the long way."""
    assert validate_messages((ai("c1"), foreign, H("x"))) == []


def test_f29_a_human_message_waits_until_all_others_are_matched():
    """A real result of the same call wins, even if it comes later."""
    texts = H("r", id="h", additional_kwargs={"tool_call_id": "c1"})
    assert repaired([ai("c1"), texts, result("real", "c1")]) == [
        ai("c1"),
        result("real", "c1"),
        texts,
    ]


def test_f06_a_result_before_its_call_does_not_oust_the_one_behind_it():
    """The one in place stays; the early one is dropped, whole."""
    early = result("early", "c1")
    patch = patch_messages([early, ai("c1"), result("r", "c1")])
    assert patch.messages == [ai("c1"), result("r", "c1")]
    assert patch.changes == (Change("dropped", "duplicate", 0, "c1", None, None, early, None),)


def late_under(old_id, *history):
    """What becomes of a real result that comes late, under an id that was used again."""
    once = patch_messages(list(history)).messages
    answered = [*once, result("late", old_id)]
    messages = patch_messages(answered).messages
    assert validate_messages(messages) == []
    return [m.text == "late" for m in messages if isinstance(m, ToolMessage)]


@pytest.mark.parametrize("old_id", ["t:0", "call_a"])
def test_f11_a_late_result_goes_to_the_nearest_of_two_open_calls(old_id):
    """The renamed one if that is the later, also where the id itself has an underscore."""
    turns = ai(old_id, id="a1"), H("x"), ai(old_id, id="a2"), H("y")
    renamed = patch_messages(list(turns)).messages[3]
    assert late_under(old_id, *turns) == [False, True]
    assert late_under(old_id, renamed, H("x"), ai(old_id, id="a1"), H("y")) == [False, True]


def test_f11_a_late_result_is_in_call_order_if_one_tool_is_called_twice():
    """Gemini knows results by their order alone: moved behind a placeholder it would be another's.

    Where the tools differ, the order of the history stays.
    """
    alike, unlike = ai("c1", "c2"), ai("c1", ("u", "c2"))
    late, other = result("r1", "c1"), result("r2", "c2")
    assert repaired([alike, other, H("x"), late]) == [alike, late, other, H("x")]
    assert repaired([unlike, other, H("x"), late]) == [unlike, other, late, H("x")]


def test_f11_an_id_that_only_looks_renamed():
    """A call has been renamed from an id only if its own id can be derived from that."""
    assert late_under("t:0", ai("t:0_deadbeef", id="a1"), H("x")) == [False]


def test_f11_ids_that_only_begin_alike_are_no_family():
    """However many there are, the renamed call among them is found."""
    turns = ai("t", id="a1"), result("r", "t"), ai("t", id="a2"), H("x")
    crowd = [ai(f"t_{number}", id=f"b{number}") for number in range(40)]
    assert late_under("t", *turns, *crowd) == [False, True, *[False] * 40]


def test_f12_each_of_two_calls_with_one_id_has_its_own_placeholder():
    """Older repairs wrote two under one id: both are kept, each for its own call."""
    mark = {PLACEHOLDER_KEY: {"cause": "unknown"}}
    first, second = (result(text, "c1", additional_kwargs=mark) for text in ("one", "two"))
    _, *answers = patch_messages([ai("c1", "c1", id="a1"), first, second]).messages
    assert [answer.text for answer in answers] == ["one", "two"]


def test_r36_derived_ids_are_the_same_in_every_version():
    """A later result is found by them, so they may not change: their beginning, their digest."""
    history = [ai(None), ai(None), ai("Call/" + "x" * 40, id="a1"), ai("", id="a2")]
    ids = [m.tool_calls[0]["id"] for m in repaired(history) if m.type == "ai"]
    assert ids == [
        "call_efb3dd49",
        "call_90ad0d44",
        "Call_xxxxxxxxxxxxxxxxxxxxxxxxxx_5b41bafe",
        "call_4327b674",
    ]
    assert len(ids[2]) == 40


def test_f12_a_message_id_of_another_type():
    """What an application wrote in there does not stop a repair."""
    odd = ai("").model_copy(update={"id": UUID(int=7)})
    once, again = (patch_messages([odd]).messages for _ in range(2))
    assert validate_messages(once) == []
    assert once == again


@pytest.mark.parametrize(
    "expected",
    [
        FunctionMessage(name="t", content=[{"type": "text", "text": "r", "call_id": ""}]),
        ChatMessage(
            role="tool", name="t", content=[{"type": "text", "text": "r", "tool_use_id": ""}]
        ),
        H([{"type": "tool_result", "tool_use_id": "c 1", "content": [{"tool_use_id": "c 1"}]}]),
    ],
)
def test_f29_blocks_of_a_converted_result_name_its_call(expected):
    """Inside too, and also where the call gets a new id."""
    call_id = "c 1" if expected.type == "human" else "c1"
    after_repair, answer = repaired([ai(call_id, id="a1"), expected])
    (block,) = answer.content
    assert block.get("tool_use_id", block.get("call_id")) == after_repair.tool_calls[0]["id"]


def test_f29_blocks_without_a_call_beside_one_that_is_matched():
    """Each block is judged by itself; those without a call are dropped."""
    blocks = [
        {"type": "tool_result", "tool_use_id": call_id, "content": "r"} for call_id in ("c1", "no")
    ]
    patch = patch_messages([ai("c1"), H(blocks)])
    assert [m.type for m in patch.messages] == ["ai", "tool"]
    assert [(c.kind, c.tool_call_id) for c in patch.changes] == [
        ("converted", "c1"),
        ("dropped", "no"),
    ]


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("", invalid_tool_calls=[invalid_of('{"a": 1}')]),
        AIMessageChunk(
            content="", tool_call_chunks=[{"name": "t", "args": '{"a', "id": "c1", "index": 0}]
        ),
    ],
    ids=["invalid but complete", "listed but cut"],
)
def test_f09_what_cannot_be_run_is_never_pending(message):
    """Whoever runs next would run it, or skip it: it is answered at once."""
    assert len(patched([message]).messages) == 2


def test_f10_the_raw_form_is_no_map_by_call_id():
    """A call that is called as a key of it changes nothing in it."""
    raw = {"name": "t", "arguments": "{}"}
    history = [ai("name", ("u", "name"), id="a1", additional_kwargs={"function_call": raw})]
    assert repaired(history)[0].additional_kwargs == {"function_call": raw}


@pytest.mark.parametrize("raw", [7, "tool", {"id": "c1"}, True])
def test_f10_a_raw_form_that_is_no_list_holds_no_calls(raw):
    """Whatever an application put there."""
    history = [AIMessage("a", additional_kwargs={"tool_calls": raw}), H("x")]
    assert patch_messages(history).messages is history


def test_evidence_leaves_a_placeholder_with_an_empty_marker():
    """A mark of another make has no cause: it is a placeholder, and stays."""
    texts = result("?", "c1", id="x", additional_kwargs={PLACEHOLDER_KEY: True})
    history = [ai("c1", id="a1"), texts]
    patch = patch_messages(history, evidence={(0, 0): Finding("failed", error="kaput")})
    assert patch.messages is history


def test_results_of_one_tool_in_another_order_than_its_calls_stay():
    """Both are in place: the repair of other damage does not touch them."""
    reported = [ai("c1", "c2"), result("r2", "c2"), result("r1", "c1"), H("x")]
    assert repaired([*reported, ai("c3")]) == [*reported, ai("c3"), made("c3")]


def test_r25_a_renamed_chunk_says_the_same_in_its_pieces():
    """As LangChain writes them, whatever the arguments hold."""
    odd = {"a": {1, 2}}
    chunk = AIMessageChunk(content="", id="a1")
    stored = chunk.model_copy(update={"tool_calls": [call_of("t", "c 1", odd)]})
    after_repair = patch_messages([stored]).messages[0]
    assert after_repair.tool_call_chunks == [
        {
            "name": "t",
            "args": '{"a": "{1, 2}"}',
            "id": after_repair.tool_calls[0]["id"],
            "index": None,
            "type": "tool_call_chunk",
        }
    ]
    assert after_repair.tool_calls[0]["args"] == odd
