"""Which result belongs to which call: the five rules, one table for each."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, FunctionMessage, SystemMessage, ToolMessage

from langgraph_patch import is_placeholder, patch_messages, validate_messages
from langgraph_patch.history.ids import PLACEHOLDER_KEY
from support.histories import H, ai, is_quiet, made, marked, repaired, result
from support.placeholder_texts import DEEPAGENTS_CANCELLED

X = H("x")


def texts(history, **options):
    """The result that each call has in the repaired history; None for a placeholder."""
    messages = patch_messages(history, **options).messages
    assert validate_messages(messages) == []
    results = {m.tool_call_id: m for m in messages if isinstance(m, ToolMessage)}
    calls = [c for m in messages if isinstance(m, AIMessage) for c in m.tool_calls]
    found = [results[call["id"]] for call in calls]
    return [None if is_placeholder(each) else each.content for each in found]


def dropped(history):
    """The results that the repair removes, with their defects."""
    changes = patch_messages(history).changes
    return [(c.defect, c.before.text) for c in changes if c.kind == "dropped"]


def named(content, name, call_id="c1"):
    """A result that names its tool."""
    return result(content, call_id, name=name)


def turns(*tools, call_id="c1"):
    """A repaired history: the messages `a0`, `a1`, ... call these tools, all with one id."""
    calls = [ai((tool, call_id), id=f"a{n}") for n, tool in enumerate(tools)]
    return patch_messages([m for call in calls for m in (call, X)]).messages


A, A2 = ai("c1", id="a1"), ai("c1", id="a2")
TWO_TOOLS = ai(("search", "c1"), ("write", "c1"), id="a1")
TWO_CALLS = ai("c1", "c1", id="a1")
RENAMED = turns("t", "t")
THREE_TOOLS = patch_messages([ai(("a", "c1"), ("b", "c1"), ("c", "c1"), id="a1"), X]).messages
NEAREST = {
    "each turn has its own": ([A, result("1"), X, A2, result("2")], ["1", "2"]),
    "the nearer call is open": ([A, X, A2, X, result("2")], [None, "2"]),
    "a second one is no older call's": ([A, X, A2, result("r"), result("r")], [None, "r"]),
    "another tool used the id again": (
        [A, X, ai(("u", "c1"), id="a2"), named("r", "t")],
        [None, None],
    ),
    "the first in place is kept": ([A, result("1"), result("2")], ["1"]),
    "late, under the old id": ([*RENAMED, result("2")], [None, "2"]),
    "late, the renamed call is the older": ([RENAMED[3], X, A, X, result("r")], [None, "r"]),
    "an id that only looks renamed": ([ai("t_deadbeef", id="a1"), X, result("r", "t")], [None]),
    "ids that only begin alike": (
        [*turns("t", "t", call_id="t"), *(ai(f"t_{n}") for n in range(3)), result("r", "t")],
        [None, "r", None, None, None],
    ),
}

NAMES = {
    "the name decides": ([TWO_TOOLS, named("w", "write")], [None, "w"]),
    "no name, none left": (
        [TWO_TOOLS, named("s", "search"), named("w", "write"), result("?")],
        ["s", "w"],
    ),
    "two names of one tool": ([TWO_TOOLS, named("1", "write"), named("2", "write")], [None, "1"]),
    "a call without a name takes any": (
        [ai(("", "c1"), id="a1"), X, A2, X, ai(("", "c1"), id="a3"), named("r", "t")],
        [None, None, "r"],
    ),
    "a call without a name beside one with it": (
        [ai(("", "c1"), ("t", "c1")), named("1", "t"), named("2", "t")],
        ["2", "1"],
    ),
    "a name of the application's own": ([A, named("r", "my_agent"), X], ["r"]),
    "but not behind other messages": ([A, X, AIMessage("hm"), named("r", "my_agent")], [None]),
    "late, each tool's own": (
        [*THREE_TOOLS, *(named(name, name) for name in "cab")],
        ["a", "b", "c"],
    ),
    "a handoff under the id of its sibling": (
        [*patch_messages([TWO_TOOLS, named("s", "search"), X]).messages, ai("c9"), X],
        ["s", None, None],
    ),
}

COUNTS = {
    "as many as calls": ([TWO_CALLS, result("1"), result("2")], ["1", "2"]),
    "one too few": ([TWO_CALLS, named("r", "t"), X], [None, None]),
    "one too many": ([TWO_CALLS, result("1"), result("2"), result("3")], ["1", "2"]),
    "one tool whole, one not": (
        [ai(("u", "c1"), ("t", "c1"), ("t", "c1")), named("1", "t"), named("u", "u")],
        ["u", None, None],
    ),
    "names of tools only": (
        [ai("c1", "c2"), FunctionMessage("1", name="t"), FunctionMessage("2", name="t")],
        ["1", "2"],
    ),
    "names of tools only, too few": ([ai("c1", "c2"), FunctionMessage("1", name="t")], [None] * 2),
}

FAKE = result(DEEPAGENTS_CANCELLED.format("t", "c1"))
FOREIGN = {
    "before the result": ([A, FAKE, result("r"), X], ["r"]),
    "late result": ([A, FAKE, X, result("r")], ["r"]),
    "of two calls": ([TWO_CALLS, FAKE, result("1"), result("2")], ["1", "2"]),
    "beside one result": ([TWO_CALLS, FAKE, result("2")], [FAKE.content, "2"]),
}

EARLY = {
    "results between": ([named("1", "t"), result("2", "c2"), ai("c1", ("u", "c2"))], ["1", "2"]),
    "a message between": ([result("r"), X, A], [None]),
    "a message with more than results": (
        [result("r"), H([{"type": "tool_result", "tool_use_id": "c9"}, "and"]), A],
        [None],
    ),
    "another tool": ([named("r", "u"), A], [None]),
    "a call without a name": ([named("r", "u"), ai(("", "c1"))], ["r"]),
    "too few": ([result("r"), TWO_CALLS], [None, None]),
    "an older call of the tool, past another": (
        [A, X, ai(("u", "c1"), id="a2"), X, named("r", "t"), ai("c1", id="a3")],
        [None, None, None],
    ),
    "a renamed call": ([*turns("u", "t")[:3], named("r", "t"), *turns("u", "t")[3:]], [None, "r"]),
    "a renamed call, past another": (
        [*(two := turns("t", "u", "t"))[:6], named("r", "t"), *two[6:]],
        [None, None, None],
    ),
}


@pytest.mark.parametrize("rule", [NEAREST, NAMES, COUNTS, FOREIGN, EARLY], ids=[*"12345"])
def test_f11_f40_each_rule_of_pairing(rule):
    """The calls get these results, and no other; None is a placeholder."""
    expected = {name: found for name, (_, found) in rule.items()}
    assert {name: texts(history) for name, (history, _) in rule.items()} == expected
    once = {name: patch_messages(history).messages for name, (history, _) in rule.items()}
    assert {name: texts(history) for name, history in once.items()} == expected


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ([TWO_TOOLS, result("whose?")], [("duplicate", "whose?")]),
        ([result("r"), X, ai("c2")], [("orphan", "r")]),
        ([marked({"cause": "unknown"}, "old"), X, A], [("superseded", "old")]),
        (
            [result("Paris", "w:0"), AIMessage("hm"), X, ai("w:0")],
            [("duplicate", "Paris")],
        ),
    ],
)
def test_f13_f41_what_is_not_paired_is_dropped(history, expected):
    """As a duplicate or an orphan, whole in the changes; a placeholder as superseded."""
    assert dropped(history) == expected


def test_f13_a_real_result_that_reads_like_a_placeholder_is_real():
    """The marker tells them apart, not the words; a marker without a cause is none."""
    words = patch_messages([A]).messages[1].content
    for real in (result(words), marked(7, words), marked({"not_kept": ["f"]}, words)):
        assert repaired([A, real, X, result("later")]) == [A, real, X]


def test_f12_each_of_two_calls_with_one_id_has_its_own_placeholder():
    """Older repairs wrote two under one id: both are kept, each for its own call."""
    first, second = (marked({"cause": "unknown"}, text) for text in ("one", "two"))
    _, *answers = patch_messages([TWO_CALLS, first, second]).messages
    assert [answer.text for answer in answers] == ["one", "two"]


def test_f06_a_placeholder_is_not_given_to_a_later_call():
    """What it says is true of its own call alone."""
    old = marked({"cause": "awaiting_input"}, "waited")
    messages = repaired([old, SystemMessage("s"), A2])
    assert [m.additional_kwargs[PLACEHOLDER_KEY]["cause"] for m in messages[2:]] == ["unknown"]


def test_f23_answered_calls_are_left_alone():
    """Results in another order, or with status error, stay, also beside other damage."""
    no = result("rejected", "c2", status="error")
    history = [H("q"), ai("c1", "c2"), no, result("approved"), AIMessage("done")]
    assert is_quiet(history)
    assert repaired([*history, ai("c3")]) == [*history, ai("c3"), made("c3")]
    assert is_quiet([A, named("r", "alias"), X])
