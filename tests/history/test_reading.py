"""The ids and names of calls in the repaired history, and which calls are searched for."""

from langchain_core.messages import AIMessage, SystemMessage

from langgraph_patch import patch_messages
from langgraph_patch.history.fields import PLACEHOLDER_KEY, derived_id, valid_name
from support.histories import (
    H,
    ai,
    call_of,
    defects,
    invalid_of,
    is_quiet,
    kinds,
    patched,
    repaired,
    result,
    with_field,
)


def ids_of(messages):
    """The ids of all calls."""
    return [call["id"] for m in messages if m.type == "ai" for call in m.tool_calls]


def test_no_id_or_one_that_a_provider_refuses():
    """An id is derived, the same one each time; the result gets it too; valid ids stay."""
    for call_id in (None, "x" * 41, "släsh", "a\n"):
        history = [ai(call_id, id="a1"), result("r", call_id or ""), H("z")]
        message, answer, _ = repaired(history)
        [new_id] = ids_of([message])
        assert new_id.isascii()
        assert 1 < len(new_id) <= 40
        assert answer == result("r", new_id)
        assert defects(history) == ["bad_id"]
    for call_id in ("A" * 40, "functions.se_ar-ch:0"):  # Kimi's ids have dots and colons
        assert is_quiet([ai(call_id), result("r", call_id)])


def test_a_renamed_call_stores_all_its_earlier_ids():
    """The oldest first, also where a repair renames it again; each of them finds it."""
    first = patch_messages([ai("c1", id="a1"), H("x"), ai("c1", id="a2"), H("x")]).messages
    once = first[3].tool_calls[0]["id"]
    again = patch_messages([ai(once, id="a9"), H("x"), *first]).messages
    twice = again[6].tool_calls[0]["id"]
    assert first[3].additional_kwargs == {PLACEHOLDER_KEY: {"earlier_ids": {once: ["c1"]}}}
    assert again[6].additional_kwargs == {PLACEHOLDER_KEY: {"earlier_ids": {twice: ["c1", once]}}}
    by_earlier_id = [first[3], result("r")]
    assert (kinds(by_earlier_id), defects(by_earlier_id)) == (["renamed"], ["bad_id"])
    for call_id in ("c1", twice):
        late = [*first[:2], ai("c1"), result("0"), again[6], result("r", call_id)]
        assert patch_messages(late).messages[-1].text == "r"


def test_derived_ids_are_the_same_in_every_version():
    """They are stored in threads: their beginning, their digest; also of messages without ids."""
    history = [ai(None), ai(None), ai("Call/" + "x" * 40, id="a1"), ai("", id="a2"), ai("c1", None)]
    ids = ids_of(repaired(history))
    long = "Call_xxxxxxxxxxxxxxxxxxxxxxxxxx_5b41bafe"
    expected = ["call_efb3dd49", "call_90ad0d44", long, "call_4327b674", "c1", "call_ddd781a5"]
    assert ids == expected
    taken = [ai("", id="a2"), ai("call_4327b674", id="a3")]
    assert ids_of(repaired(taken)) == [derived_id("", "a2", 0, salt=1), "call_4327b674"]


def test_a_name_that_providers_refuse():
    """It is replaced in the call and in its result; a valid name of the result's own stays."""
    for name, valid in (("", "unknown_tool"), ("检 索", "___"), ("n" * 65, "n" * 64)):
        history = [ai((name, "c1")), result("r", name=name)]
        assert repaired(history) == [ai((valid, "c1")), result("r", name=valid)]
        assert (kinds(history), defects(history)) == (["renamed"], ["bad_name"])
        assert valid_name(valid) is valid
    history = [ai("c1"), result("r", name="no good")]
    assert repaired(history) == [ai("c1"), result("r", name="t")]
    assert (kinds(history), defects(history)) == (["renamed"], ["bad_name"])
    assert repaired([ai(("wire it", "c1")), result("r", name="alias")])[1].name == "alias"


def test_calls_at_the_end_are_left_to_what_runs_next():
    """For an entry check; others are not."""
    history = [ai("c1"), H("x"), ai("c2", "c3"), result("r3", "c3")]
    patch = patched(history)
    assert patch.messages[3:] == history[2:]
    assert [change.defect for change in patch.changes] == ["dangling"]
    assert defects(history) == ["dangling", "dangling"]
    assert not patched(history[2:])
    assert patched([*history[2:], SystemMessage("s")])


def test_a_message_with_an_open_and_an_unlisted_call_stays_as_it_is():
    """A call that were listed now would be run; ids and names change when all results are there."""
    block = {"type": "tool_use", "id": "c1", "name": "t", "input": {}}
    assert not patched([AIMessage([block])])
    assert not patched([ai("c 1")])
    assert not patched([ai("c 1", "c 2"), result("r", "c 1")])
    both = AIMessage([block], tool_calls=[call_of("t", "c 2")])
    assert not patched([both])
    invalid = with_field(ai("c 1"), invalid_tool_calls=[invalid_of("{", "c 0")])
    stays, answer = patched([invalid]).messages
    assert stays is invalid
    assert answer.tool_call_id == "c 0"
    first, second, *_ = repaired([stays, answer, result("r", "c 1")])
    assert second.tool_call_id in ids_of([first])
