"""Which result belongs to which call, and which results are replaced: one example per rule."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langgraph_patch import is_placeholder, patch_messages, set_language, validate_messages
from langgraph_patch.history.calls import read_calls
from langgraph_patch.history.fast_check import is_valid
from langgraph_patch.history.ids import PLACEHOLDER_KEY
from langgraph_patch.history.patch import changes_history, patch_reading, read_if_damaged
from langgraph_patch.history.repair import dangling_calls
from langgraph_patch.history.texts import Finding
from support.placeholder_texts import DEEPAGENTS_CANCELLED, FAILED, UNKNOWN

H = HumanMessage
CHAT_UI = "Successfully handled tool call."


def ai(*calls, message_id="a1"):
    """A model's message with these calls, each a (name, id)."""
    listed = [{"name": name, "args": {}, "id": call_id} for name, call_id in calls]
    return AIMessage("", tool_calls=listed, id=message_id)


def result(content, call_id="c1", **fields):
    """A tool's result."""
    return ToolMessage(content, tool_call_id=call_id, **fields)


def texts(history, **options):
    """The result that each call has in the repaired history; None for a placeholder."""
    patch = patch_messages(history, **options)
    assert validate_messages(patch.messages) == []
    results = {m.tool_call_id: m for m in patch.messages if isinstance(m, ToolMessage)}
    calls = [c for m in patch.messages if isinstance(m, AIMessage) for c in m.tool_calls]
    return [
        None if is_placeholder(results[call["id"]]) else results[call["id"]].content
        for call in calls
    ]


def repaired_turns(*tools):
    """A repaired history: the message `a0`, `a1`, ... of each turn calls a tool with the id c1."""
    calls = [ai((tool, "c1"), message_id=f"a{n}") for n, tool in enumerate(tools)]
    return patch_messages([m for call in calls for m in (call, H("x"))]).messages


def dropped(history):
    """The results that the repair removes, as they were stored."""
    return [c.before for c in patch_messages(history).changes if c.kind == "dropped"]


# --- names -----------------------------------------------------------------------------


def test_f40_two_tools_under_one_id_get_the_results_that_name_them():
    """The name decides, whatever the order."""
    calls = ai(("search", "c1"), ("write_file", "c1"))
    assert texts([calls, result("file written", name="write_file"), H("x")]) == [
        None,
        "file written",
    ]
    both = [result("w", name="write_file"), result("s", name="search")]
    assert texts([calls, *both]) == ["s", "w"]


def test_f40_one_result_without_a_name_for_two_calls_is_of_neither():
    """It is dropped, and stays whole in the changes."""
    found = result("whose?")
    history = [ai(("search", "c1"), ("write_file", "c1")), found, H("x")]
    assert texts(history) == [None, None]
    assert dropped(history) == [found]


def test_f40_one_result_for_two_calls_of_one_tool_is_of_neither():
    """Batched approvals under one id `call_0`."""
    calls = ai(("wire", "call_0"), ("wire", "call_0"))
    assert texts([calls, result("r", "call_0", name="wire"), H("x")]) == [None, None]
    two = [result("first", "call_0", name="wire"), result("second", "call_0", name="wire")]
    assert texts([calls, *two]) == ["first", "second"]


def test_f40_the_only_call_left_gets_the_result_without_a_name():
    """The other call has the result that names it."""
    calls = ai(("search", "c1"), ("write_file", "c1"))
    assert texts([calls, result("?"), result("s", name="search")]) == ["s", "?"]


def test_an_id_used_again_by_another_tool_does_not_take_the_older_result():
    """Neither does the older call get it: results never pass a nearer call."""
    late = result("found", name="search")
    history = [ai(("search", "c1")), H("x"), ai(("write_file", "c1"), message_id="a2"), late]
    assert texts(history) == [None, None]
    assert dropped(history) == [late]


def test_a_name_that_no_call_of_the_id_has_says_nothing():
    """Some applications write names of their own into results."""
    history = [ai(("search", "c1")), result("r", name="search_agent"), H("x")]
    assert patch_messages(history).messages is history
    again = [*history, ai(("search", "c1"), message_id="a2"), result("s", name="search_agent")]
    assert texts(again) == ["r", "s"]


# --- never past a nearer call ----------------------------------------------------------


def test_a_duplicate_does_not_replace_the_placeholder_of_an_older_turn():
    """It is a duplicate of the nearer call's result."""
    first = patch_messages([ai(("wire", "c1")), H("x")]).messages
    history = [*first, ai(("wire", "c1"), message_id="a2"), result("r"), result("r")]
    assert texts(history) == [None, "r"]


def test_a_late_result_of_a_renamed_call_is_found_by_its_old_id():
    """Its call got a new id in an earlier repair, and nothing answers that id yet."""
    early = [ai(("wire", "c1")), result("r1"), H("x"), ai(("wire", "c1"), message_id="a2"), H("y")]
    repaired = patch_messages(early).messages
    assert texts(repaired) == ["r1", None]
    assert texts([*repaired, result("r2")]) == ["r1", "r2"]


AMBIGUOUS = {
    "one message": [ai(("wire", "c1"), ("wire", "c1"))],
    "two messages with one id": [ai(("wire", "c1"), ("wire", "c1"))] * 2,
    "messages without ids": [ai(("wire", "c1"), ("wire", "c1"), message_id=None)] * 2,
    "an id that is renamed for all": [ai(("wire", "c 1"), ("wire", "c 1"))],
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_a_human_message_that_names_the_id_of_two_calls_stays_one(name):
    """Also in the repaired history, where only one of the calls has the id, or none."""
    calls = AMBIGUOUS[name]
    call_id = calls[0].tool_calls[0]["id"]
    human = H("done", id="h1", additional_kwargs={"tool_call_id": call_id})
    repaired = patch_messages([*calls, human]).messages
    assert repaired[-1] is human
    assert patch_messages(repaired).messages is repaired
    assert texts([*calls, human]) == [None] * 2 * len(calls)
    both = [*calls, human, human.model_copy(update={"id": "h2", "content": "done too"})]
    assert texts(both)[-2:] == ["done", "done too"]


def test_a_human_message_is_not_of_a_call_whose_id_only_looks_derived():
    """The id is not the one that a repair gives to the second call."""
    calls = ai(("wire", "c1"), ("wire", "c1_deadbeef"))
    humans = [H(t, id=t, additional_kwargs={"tool_call_id": "c1"}) for t in ("one", "two")]
    assert texts([calls, *humans]) == ["one", None]


# --- before the call -------------------------------------------------------------------


def test_f06_a_result_directly_before_its_call_is_moved():
    """Also if other results are between them."""
    calls = ai(("wire", "c1"), ("mail", "c2"))
    assert texts([H("x"), result("r1"), result("r2", "c2", name="mail"), calls]) == ["r1", "r2"]


@pytest.mark.parametrize("between", [[H("x")], [AIMessage("hm")], [AIMessage("hm"), H("x")]])
def test_f41_a_result_before_another_message_is_of_no_later_call(between):
    """It is the result of an earlier call that is gone."""
    stale = result("Paris", "functions.weather:0", name="weather")
    history = [stale, *between, ai(("weather", "functions.weather:0")), H("y")]
    assert texts(history) == [None]
    assert dropped(history) == [stale]


def test_a_result_before_its_call_must_not_name_another_tool():
    """It is an orphan, although nothing is stored between them."""
    assert texts([result("r", name="search"), ai(("wire", "c1")), H("x")]) == [None]


# --- real results and placeholders of others -------------------------------------------


@pytest.mark.parametrize("replace_foreign", [False, True])
def test_f42_a_real_result_beats_the_placeholder_of_deepagents(replace_foreign):
    """Whichever comes first, without an option; the placeholder is superseded."""
    fake = result(DEEPAGENTS_CANCELLED.format("wire", "c1"))
    real = result("wired 3")
    for results in ([fake, real], [real, fake]):
        history = [ai(("wire", "c1")), *results, H("x")]
        assert texts(history, replace_foreign=replace_foreign) == ["wired 3"]
        assert "superseded" in [defect.defect for defect in validate_messages(history)]
    assert texts([ai(("wire", "c1")), fake, H("x")]) == [fake.content]


FAKES = [result(CHAT_UI, id="do-not-render-17"), result('{"cancelled":true}')]


@pytest.mark.parametrize("fake", FAKES)
def test_f39_what_known_clients_invent_is_replaced(fake):
    """By a placeholder, a finding or the real result; the fake stays in the change."""
    history = [ai(("wire", "c1")), fake, H("x")]
    reading = read_if_damaged(history)
    assert [call.id for call in reading.unanswered] == ["c1"]
    patch = patch_messages(history)
    assert patch.messages[1].content == UNKNOWN.format("wire", "c1")
    assert [change.before for change in patch.changes] == [fake]
    assert texts(history, evidence={(0, 0): Finding(result=result("wired 3"))}) == ["wired 3"]
    assert texts([*history, result("wired 3")]) == ["wired 3"]


@pytest.mark.parametrize(
    "genuine",
    [
        result(CHAT_UI),
        result('{"cancelled": true}'),
        result('{"cancelled":false}'),
        result('{"cancelled":true}', name="wire"),
    ],
)
def test_f39_what_a_tool_may_return_is_no_fake(genuine):
    """agent-chat-ui marks its ids, Python writes JSON with spaces, a ToolNode names the tool."""
    history = [ai(("wire", "c1")), genuine, H("x")]
    assert patch_messages(history).messages is history


# --- recorded results with a marker ----------------------------------------------------


@pytest.fixture
def chinese():
    """Chinese texts during the test."""
    set_language("zh")
    yield
    set_language("en")


def recovered(recorded):
    """The result in a history that was repaired with this finding."""
    patch = patch_messages([ai(("write_file", "c1")), H("x")], evidence={(0, 0): recorded})
    assert patch_messages(patch.messages).messages is patch.messages
    assert not is_placeholder(patch.messages[1])
    return patch.messages[1]


def test_f38_effects_that_were_not_kept_are_named():
    """Before the text, and in the marker; the result is no placeholder."""
    found = recovered(Finding(result=result("Updated file"), not_kept=("files", "goto")))
    assert found.content == (
        "These effects of the tool call were not kept: files, goto. Its recorded result:\n"
        "Updated file"
    )
    assert found.additional_kwargs == {PLACEHOLDER_KEY: {"not_kept": ["files", "goto"]}}


@pytest.mark.usefixtures("chinese")
def test_f38_effects_that_were_not_kept_are_named_in_chinese():
    """As in English."""
    found = recovered(Finding(result=result("Updated file"), not_kept=("files", "goto")))
    sentence = "该工具调用的以下影响未被保留:files, goto。其已记录的结果:"
    assert found.content == f"{sentence}\nUpdated file"


def test_f38_the_sentence_is_a_block_of_its_own_before_blocks():
    """The recorded message is not changed."""
    block = {"type": "text", "text": "Updated file"}
    message = result([block])
    first, second = recovered(Finding(result=message, not_kept=("files",))).content
    assert first["type"] == "text"
    assert "files" in first["text"]
    assert second == block
    assert message == result([block])


def test_a_reconciled_result_is_marked():
    """It is a real result for every later repair."""
    found = recovered(Finding("reconciled", result=result("wired 3")))
    assert found.content == "wired 3"
    assert found.additional_kwargs == {PLACEHOLDER_KEY: {"cause": "reconciled"}}


# --- what is searched again ------------------------------------------------------------


def repaired_with(finding):
    """A history that was repaired with this finding about its call."""
    return patch_messages([ai(("wire", "c1")), H("x")], evidence={(0, 0): finding}).messages


def ids_of(calls):
    """The ids of calls."""
    return [call.id for call in calls]


def test_a_call_with_a_final_placeholder_is_not_searched_again():
    """Only the new call is; whoever asks for all calls without a result gets both."""
    history = repaired_with(Finding())
    assert read_if_damaged(history, look_again=True) is None
    reading = read_if_damaged([*history, ai(("mail", "c2"), message_id="a2")], look_again=True)
    assert ids_of(reading.unanswered) == ["c2"]
    assert ids_of(reading.without_result) == ["c1", "c2"]


@pytest.mark.parametrize("cause", ["unknown", "awaiting_input"])
def test_a_marked_placeholder_is_searched_for_once_more(cause):
    """By whoever asks for it; what is found then, also the same, is written without the mark."""
    history = repaired_with(Finding(cause, look_again=True))
    marker = {"cause": cause, "look_again": True}
    assert history[1].additional_kwargs == {PLACEHOLDER_KEY: marker}
    assert validate_messages(history) == []
    assert patch_messages(history).messages is history
    assert is_valid(history, leaves_open=False)
    assert not is_valid(history, leaves_open=False, look_again=True)
    assert read_if_damaged(history) is None
    reading = read_if_damaged(history, look_again=True)
    assert ids_of(reading.unanswered) == ["c1"]
    assert patch_reading(reading).messages is history
    still = patch_reading(reading, evidence={(0, 0): Finding(cause, look_again=True)})
    # A task that has recorded its end is looked for once, one that may still run again and again.
    assert (still.messages is history) == (cause == "unknown")
    late = patch_reading(reading, evidence={(0, 0): Finding(result=result("wired 3"))})
    assert late.messages[1].content == "wired 3"
    patch = patch_reading(reading, evidence={(0, 0): Finding(cause)})
    assert patch.messages[1].content == history[1].content
    assert patch.messages[1].additional_kwargs == {PLACEHOLDER_KEY: {"cause": cause}}
    assert not changes_history(patch)
    assert read_if_damaged(patch.messages, look_again=True) is None


def test_a_marked_placeholder_gives_way_to_a_new_cause():
    """It was searched for once more: that is enough for a task that has ended."""
    history = repaired_with(Finding(look_again=True))
    reading = read_if_damaged(history, look_again=True)
    failed = {(0, 0): Finding("failed", error="e", look_again=True)}
    patch = patch_reading(reading, evidence=failed)
    assert changes_history(patch)
    assert patch.messages[1].content == FAILED.format("wire", "c1", "e")
    assert patch.messages[1].additional_kwargs == {PLACEHOLDER_KEY: {"cause": "failed"}}


# --- calls that a repair renamed ---------------------------------------------------------


def test_a_renamed_call_stores_its_earlier_ids():
    """The oldest first, in its message; the call is found by each of them."""
    first = repaired_turns("wire", "wire")
    (renamed,) = read_calls(first[3], 3)
    assert (renamed.earlier_ids, renamed.id) == (("c1",), first[3].tool_calls[0]["id"])
    again = [ai(("wire", renamed.id), message_id="a9"), H("x"), *first]
    calls = [c for m in patch_messages(again).messages if m.type == "ai" for c in read_calls(m)]
    assert [call.earlier_ids for call in calls] == [(), (), ("c1", renamed.id)]
    for call_id in ("c1", calls[2].id):
        assert (
            texts([*first[:3], patch_messages(again).messages[6], result("r", call_id)])[1] == "r"
        )


def test_hostile_earlier_ids_are_ignored():
    """Whatever an application stores under the key of this package."""
    for stored in (None, 7, {"earlier_ids": 7}, {"earlier_ids": {"c1": "c0"}}):
        message = ai(("wire", "c1")).model_copy(
            update={"additional_kwargs": {PLACEHOLDER_KEY: stored}}
        )
        assert read_calls(message)[0].earlier_ids == ()


def test_calls_are_renamed_beside_an_incomplete_one():
    """The positions of the evidence count all calls of the message."""
    cut = {"name": "wire", "args": '{"a', "id": "c1", "error": "no JSON"}
    message = ai(("mail", "c1")).model_copy(update={"invalid_tool_calls": [cut]})
    repaired = patch_messages([message, H("x")], evidence={(0, 1): Finding("cancelled")}).messages
    assert [call.ordinal for call in read_calls(message)] == [0, 1]
    assert [m.additional_kwargs[PLACEHOLDER_KEY]["cause"] for m in repaired[1:3]] == [
        "unknown",
        "cancelled",
    ]


def test_a_result_of_another_tool_is_not_that_of_a_renamed_call():
    """It is that of the call directly behind it, which was renamed from its id too."""
    history = repaired_turns("ask", "wire", "mail")
    early = result("sent", name="mail", id="t9")
    last = next(i for i, m in enumerate(history) if m.id == "a2")
    assert texts([*history[:last], early, *history[last:]]) == [None, None, "sent"]
    assert texts([*history[:last], early]) == [None, None]


def test_a_name_that_no_call_has_counts_directly_after_the_call_only():
    """An application may write names of its own; a later result may be of a call that is gone."""
    named = result("found", name="my_agent")
    assert texts([ai(("search", "c1")), named, H("x")]) == ["found"]
    later = [ai(("search", "c1")), H("x"), AIMessage("hm"), named]
    assert texts(later) == [None]
    assert dropped(later) == [named]


def test_a_result_that_may_be_that_of_the_next_message_is_not_that_of_an_older_one():
    """It would pass a nearer call of its id, and it stands directly before another call of it.

    Whether a repair has renamed the calls makes no difference.
    """
    calls = [ai((t, "c1"), message_id=f"a{n}") for n, t in enumerate(("wire", "mail", "wire"))]
    stored = [calls[0], H("x"), calls[1], H("x"), result("wired", name="wire"), calls[2], H("x")]
    assert texts(stored) == [None, None, None]
    history = repaired_turns("wire", "mail", "wire")
    unclear = result("wired", name="wire", id="t9")
    last = next(i for i, m in enumerate(history) if m.id == "a2")
    assert texts([*history[:last], unclear, *history[last:]]) == [None, None, None]
    assert texts([*history[:last], unclear]) == [None, None]


# --- results inside a call, and the calls to reconcile ---------------------------------


def test_f44_results_inside_a_call_are_listed():
    """The newest first, within 500 characters."""
    inner = ("send_email to bob: sent", "search: Paris")
    history = repaired_with(Finding("unknown", inner=inner))
    expected = f"{UNKNOWN.format('wire', 'c1')} Recorded inside it: {'; '.join(inner)}"
    assert history[1].content == expected
    long = repaired_with(Finding("failed", error="e" * 900, inner=(inner[0], "x" * 900)))[1].content
    assert len(long) == 500
    assert inner[0] in long


def test_a_text_without_a_full_stop_gets_one_before_the_results_inside():
    """A recorded error ends as the application wrote it."""
    text = repaired_with(Finding("failed", error="ValueError('no')", inner=("mail: sent",)))[
        1
    ].content
    assert text.endswith("attempt: ValueError('no'). Recorded inside it: mail: sent")


def test_dangling_calls_are_those_that_get_placeholders():
    """With their causes; not those that have a result, or one in the evidence."""
    calls = ai(("wire", "c1"), ("mail", "c2"), ("search", "c3"), ("read", "c4"))
    reading = read_if_damaged([calls, result("r", "c4"), H("x")])
    evidence = {(0, 0): Finding("cancelled"), (0, 1): Finding(result=result("sent", "c2"))}
    found = dangling_calls(reading, evidence)
    assert [(key, call.name, call.cause) for key, call in found] == [
        ((0, 0), "wire", "cancelled"),
        ((0, 2), "search", "unknown"),
    ]
