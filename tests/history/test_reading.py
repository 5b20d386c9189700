"""Odd ids and names stay as the model wrote them, and which calls are left open."""

from langchain_core.messages import AIMessage

from support.histories import (
    H,
    ai,
    call_of,
    invalid_of,
    is_quiet,
    made,
    made_of_malformed,
    patched,
    repaired,
    result,
    with_field,
)


def test_two_calls_of_a_message_with_one_id_stay():
    """With two results, in the order of the calls."""
    assert is_quiet([ai("c", "c"), result("1", "c"), result("2", "c"), H("x")])
    assert repaired([ai("c", "c"), result("1", "c")]) == [ai("c", "c"), made("c"), made("c")]


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
