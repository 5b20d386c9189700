"""The form that every provider reads: the ids and names of calls, and all messages beside them."""

import pytest
from langchain_core.messages import AIMessage, FunctionMessage, SystemMessage

from langgraph_patch import patch_messages
from langgraph_patch.history.forms.plain import plain_form, portable_messages, valid_name
from support.histories import H, ai, call_of, result, with_field
from support.portable import check_portable

ID = "abcdefgh1"


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
    messages = answered(ai(None), ai(None), ai("", id="a2"), ai("abcdefgh1"), ai("abcdefgh1"))
    found = ids_of(plain(messages))
    assert found == ["efb3dd494", "90ad0d446", "4327b6746", "abcdefgh1", "d0fe4f487"]
    taken = answered(ai("", id="a2"), ai("4327b6746", id="a3"))
    assert ids_of(plain(taken))[1] == "4327b6746"
    twins = plain(answered(ai("c", "c", id="a1")))
    assert [m.tool_call_id for m in twins[1:]] == ids_of(twins)
    assert [m.text for m in twins[1:]] == ["r0", "r1"]


ODD_IDS = ["", "functions.pay:0", "call_0fypS1hVX", "a|b", "abcdefgh\n", "\u00e4bcdefgh1", "x" * 10]


@pytest.mark.parametrize("call_id", [*ODD_IDS, "x" * 40, "x" * 400])
def test_an_id_of_any_form_becomes_one_that_every_provider_accepts(call_id):
    """The result has it too; ids that differ only at their end stay different ones."""
    others = (call_id + end for end in ("1", "2", "1"))
    messages = answered(*map(ai, (call_id, *others)))
    found = plain(messages)
    assert [m.tool_call_id for m in found[1::2]] == ids_of(found)
    assert [m.text for m in found[1::2]] == ["r0"] * 4
    assert portable_messages(messages).messages == found


def test_what_gemini_signed_goes_along_with_its_call():
    """It is stored by the id of the call."""
    signed = {"__gemini_function_call_thought_signatures__": {"c1": "c2ln"}}
    message = plain(answered(ai("c1", "c2", additional_kwargs=signed)))[0]
    first = message.tool_calls[0]["id"]
    assert message.additional_kwargs == {next(iter(signed)): {first: "c2ln"}}


def test_the_names_of_two_speakers_never_become_one():
    """Neither by characters that are replaced, nor by what is cut off; valid names stay."""
    names = ["a b", "a_b", "\u5f20", "\u674e", "n" * 70, "n" * 71, "bob\nalice", "bob alice"]
    found = [m.name for m in plain([H("x", name=name) for name in [*names, "a b"]])]
    assert len({*found}) == len(names)
    assert (found[1], found[-1]) == ("a_b", found[0])
    systems = [SystemMessage("q", name="example_user"), SystemMessage("a", name="example_model")]
    [system] = plain(systems)
    assert (system.name, system.text) == (None, "[example_user]: q\n\n[example_model]: a")


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
    assert plain(answered(ai((name, ID))))[0] == ai((valid, ID))
    for own, written in (
        (name or None, valid if name else None),
        ("alias", "alias"),
        ("a b", "a_b"),
    ):
        if name or own:
            assert plain([ai((name, ID)), result("r", ID, name=own)])[1].name == written
    assert plain([ai(("", ID)), result("r", ID, name="f")])[0].tool_calls[0]["name"] == "f"


def test_all_calls_are_listed_in_the_plain_form():
    """Those of a block, raw ones, and one with a `FunctionMessage`; raw copies go."""
    block = {"type": "tool_use", "id": ID, "name": "t", "input": {}}
    assert plain([AIMessage([block]), result("r", ID)]) == [ai(ID), result("r", ID)]
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
    history = [H("q"), ai(("bank.wire", ID)), AIMessage(""), H("z")]
    messages = portable_messages(history).messages
    check_portable(messages)
    assert [m.text for m in messages[3:]] == ["[no text]", "z"]
    assert messages[1].tool_calls == [call_of("bank_wire", ID)]
    assert [m.type for m in patch_messages(history).messages] == [
        "human",
        "ai",
        "tool",
        "ai",
        "human",
    ]
