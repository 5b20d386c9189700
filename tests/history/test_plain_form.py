"""The form that every provider reads: the ids and names of calls, and all messages beside them."""

import pytest
from langchain_core.messages import AIMessage, FunctionMessage

from langgraph_patch import patch_messages
from langgraph_patch.history.plain_form import plain_form, valid_name
from support.histories import H, ai, call_of, result, with_field
from support.portable import check_portable


def ids_of(messages):
    """The ids of all calls."""
    return [call["id"] for m in messages if m.type == "ai" for call in m.tool_calls]


def plain(history):
    """The plain form of a history, which every provider reads; made again it is the same object."""
    messages = plain_form(history).messages
    check_portable(messages)
    assert plain_form(messages).messages is messages
    assert plain_form(history).messages == messages
    return messages


def answered(*calls):
    """Messages that call, each with its results behind it."""
    found = []
    for message in calls:
        results = [
            result(f"r{n}", c["id"] or "", name=c["name"] or None)
            for n, c in enumerate(message.tool_calls)
        ]
        found += [message, *results]
    return found


def test_each_call_has_an_id_of_its_own_in_the_plain_form():
    """A stored one that is valid and new stays; others are made of it: always the same ones."""
    long = ai("Call/" + "x" * 40, id="a1")
    messages = answered(ai(None), ai(None), long, ai("", id="a2"), ai("c1"), ai("c1"))
    found = ids_of(plain(messages))
    start = "Call_xxxxxxxxxxxxxxxxxxxxxxxxxx_5b41bafe"
    assert found == ["call_efb3dd49", "call_90ad0d44", start, "call_4327b674", "c1", "c1_17b38793"]
    taken = answered(ai("", id="a2"), ai("call_4327b674", id="a3"))
    assert ids_of(plain(taken))[1] == "call_4327b674"
    twins = plain(answered(ai("c", "c", id="a1")))
    assert [m.tool_call_id for m in twins[1:]] == ids_of(twins)
    assert [m.text for m in twins[1:]] == ["r0", "r1"]


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("", "unknown_tool"),
        ("\u68c0 \u7d22", "___"),
        ("n" * 65, "n" * 64),
        ("bank.wire", "bank_wire"),
    ],
)
def test_each_tool_has_a_name_that_every_provider_accepts(name, valid):
    """The result gets it too; a name of the result's own stays, if it is valid."""
    assert valid_name(valid) is valid
    assert plain(answered(ai((name, "c1"))))[0] == ai((valid, "c1"))
    for own, written in (
        (name or None, valid if name else None),
        ("alias", "alias"),
        ("a b", "a_b"),
    ):
        if name or own:
            assert plain([ai((name, "c1")), result("r", name=own)])[1].name == written
    assert plain([ai(("", "c1")), result("r", name="f")])[0].tool_calls[0]["name"] == "f"


def test_all_calls_are_listed_in_the_plain_form():
    """Those of a block, raw ones, and one with a `FunctionMessage`; raw copies go."""
    block = {"type": "tool_use", "id": "c1", "name": "t", "input": {}}
    assert plain([AIMessage([block]), result("r")]) == [ai("c1"), result("r")]
    raw = {"tool_calls": [{"id": "c1", "function": {"name": "t", "arguments": "{}"}}]}
    for extra in (raw, {"function_call": {"name": "t", "arguments": "{}"}}):
        stored = with_field(AIMessage("", additional_kwargs=extra), tool_calls=[])
        answer = result("r") if extra is raw else FunctionMessage("r", name="t")
        message, written = plain([stored, answer])
        assert message == ai(written.tool_call_id)
        assert (written.type, written.text) == ("tool", "r")


def test_the_name_of_a_tool_that_the_model_has_stays():
    """It may call it by this name; that of another tool is changed."""
    history = answered(ai(("bank.wire", "c1"), ("a b", "c2")))
    [message, *results] = plain_form(history, {"bank.wire"}).messages
    assert [call["name"] for call in message.tool_calls] == ["bank.wire", "a_b"]
    assert [result.name for result in results] == ["bank.wire", "a_b"]


def test_the_portable_form_is_the_repair_and_the_plain_form():
    """Of a damaged history; what says nothing is repaired, too. It is not what is stored."""
    history = [H("q"), ai(("bank.wire", "c1")), AIMessage(""), H("z")]
    messages = patch_messages(history, portable=True).messages
    check_portable(messages)
    assert [m.text for m in messages[3:]] == ["[no text]", "z"]
    assert messages[1].tool_calls == [call_of("bank_wire", "c1")]
    assert [m.type for m in patch_messages(history).messages] == [
        "human",
        "ai",
        "tool",
        "ai",
        "human",
    ]
