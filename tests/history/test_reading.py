"""Odd ids and names stay as the model wrote them, and which calls are left open."""

import pytest
from langchain_core.messages import AIMessage, SystemMessage

from support.histories import (
    H,
    ai,
    call_of,
    defects,
    invalid_of,
    is_quiet,
    made,
    made_of_malformed,
    patched,
    repaired,
    result,
    with_field,
)

IDS = [None, "", "x" * 46, "sl\u00e4sh", "a\n", "functions.f:0"]
NAMES = ["", "bank.wire", "a:b", "a/b", "wire it", "\u68c0 \u7d22", "n" * 70]


@pytest.mark.parametrize("call_id", IDS)
@pytest.mark.parametrize("name", NAMES)
def test_ids_and_names_that_another_provider_would_refuse_stay(name, call_id):
    """The model that reads them wrote them. A placeholder has those of its call."""
    call = ai((name, call_id), id="a1")
    assert is_quiet([call, result("r", call_id or "", name=name), H("z")])
    assert is_quiet([call, result("r", call_id or ""), call, result("r", call_id or "")])
    message, placeholder, _ = repaired([call, H("z")])
    assert message == call
    assert (placeholder.tool_call_id, placeholder.name) == (call_id or "", name or None)


def test_an_id_in_every_turn_stays():
    """Each result is that of the call in front of it; an open one gets a placeholder."""
    turn = [H("q"), ai("call_0"), result("r", "call_0")]
    assert is_quiet(turn * 3)
    assert repaired([*turn, ai("call_0"), *turn]) == [*turn, ai("call_0"), made("call_0"), *turn]
    again = [ai("call_0"), H("x")] * 2
    placeholders = [m for m in repaired(again) if m.type == "tool"]
    assert placeholders == [made("call_0")] * 2


def test_two_calls_of_a_message_with_one_id_stay():
    """With two results, in the order of the calls."""
    assert is_quiet([ai("c", "c"), result("1", "c"), result("2", "c"), H("x")])
    assert repaired([ai("c", "c"), result("1", "c")]) == [ai("c", "c"), made("c"), made("c")]


def test_calls_that_their_provider_reads_elsewhere_stay():
    """In a block of Claude's, raw as OpenAI has them, each with its result behind it."""
    block = {"type": "tool_use", "id": "c1", "name": "t", "input": {}}
    raw = {"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    of_openai = AIMessage("", additional_kwargs={"tool_calls": [raw]})
    for message in (AIMessage([block]), with_field(of_openai, tool_calls=[])):
        assert is_quiet([message, result("r"), H("x")])
        assert is_quiet([message, result("r"), ai("c2"), result("r", "c2")])
        for damaged in ([message, H("x"), result("r")], [message, H("x")]):
            assert repaired(damaged)[0].tool_calls == [call_of("t", "c1")]
            assert defects(damaged)[0] == "unlisted"


def test_calls_at_the_end_are_left_to_what_runs_next():
    """For an entry check; others are not."""
    history = [ai("c1"), H("x"), ai("c2", "c3"), result("r3", "c3")]
    patch = patched(history)
    assert patch.messages[3:] == history[2:]
    assert [change.defect for change in patch.changes] == ["dangling"]
    assert defects(history) == ["dangling", "dangling"]
    assert not patched(history[2:])
    assert not patched([*history[2:], SystemMessage("s")])
    assert patched([*history[2:], H("x")])


def test_a_message_with_an_open_and_an_unlisted_call_stays_as_it_is():
    """A call that were listed now would be run."""
    block = {"type": "tool_use", "id": "c1", "name": "t", "input": {}}
    assert not patched([AIMessage([block])])
    assert not patched([AIMessage([block], tool_calls=[call_of("t", "c 2")])])
    invalid = with_field(ai("c 1"), invalid_tool_calls=[invalid_of("{", "c 0")])
    assert not patched([invalid])
    first, second, third = repaired([invalid, result("r", "c 1")])
    assert [call["id"] for call in first.tool_calls] == ["c 1", "c 0"]
    assert (second, third) == (result("r", "c 1"), made_of_malformed("c 0", "{"))
