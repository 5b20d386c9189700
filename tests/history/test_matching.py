"""Which result belongs to which call: the five rules, one table for each."""

from __future__ import annotations

import pytest
from langchain_core.messages import AIMessage, FunctionMessage, SystemMessage, ToolMessage

from langgraph_patch import is_placeholder, patch_messages, validate_messages
from langgraph_patch.history.ids import PLACEHOLDER_KEY
from support.histories import H, ai, is_quiet, marked, repaired, result
from support.placeholder_texts import DEEPAGENTS_CANCELLED

X = H("x")
LONG = "call-with-an-id-that-is-too-long-for-chat-completions"


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
    "the first is not overtaken": ([A, result("1"), X, A2], ["1", None]),
    "the nearer call is open": ([A, X, A2, X, result("2")], [None, "2"]),
    "a second one is no older call's": ([A, X, A2, result("r"), result("r")], [None, "r"]),
    "another tool used the id again": (
        [A, X, ai(("u", "c1"), id="a2"), named("r", "t")],
        [None, None],
    ),
    "the first in place is kept": ([A, result("1"), result("2")], ["1"]),
    "not one far behind": ([A, result("1"), X, result("2")], ["1"]),
    "late, under the old id": ([*RENAMED, result("2")], [None, "2"]),
    "late, in two steps": (
        [*patch_messages([A, result("1"), X, A2, X]).messages, result("2")],
        ["1", "2"],
    ),
    "late, under an id that was too long": (
        [*turns("t", call_id=LONG), result("r", LONG)],
        ["r"],
    ),
    "late, the renamed call is the older": ([RENAMED[3], X, A, X, result("r")], [None, "r"]),
    "an id that only looks renamed": ([ai("t_deadbeef", id="a1"), X, result("r", "t")], [None]),
    "ids that only begin alike": (
        [*turns("t", "t", call_id="t"), *(ai(f"t_{n}") for n in range(3)), result("r", "t")],
        [None, "r", None, None, None],
    ),
}

NAMES = {
    "the name decides": ([TWO_TOOLS, named("w", "write")], [None, "w"]),
    "whatever the order": ([TWO_TOOLS, named("w", "write"), named("s", "search")], ["s", "w"]),
    "no name, one left": ([TWO_TOOLS, result("?"), named("s", "search")], ["s", "?"]),
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
    "the bad name of the call": ([ai(("wire it", "c1")), named("r", "wire it")], ["r"]),
    "a name of the application's own": ([A, named("r", "my_agent"), X], ["r"]),
    "in each turn": (
        [A, named("1", "my_agent"), X, A2, named("2", "my_agent")],
        ["1", "2"],
    ),
    "but not behind other messages": ([A, X, AIMessage("hm"), named("r", "my_agent")], [None]),
    "an own name beside the other result": (
        [ai("c1", ("u", "c2")), result("u", "c2"), named("r", "my_agent")],
        ["r", "u"],
    ),
    "the name of another turn": (
        [ai(("u", "c1"), id="a0"), result("0"), X, A, named("r", "u")],
        ["0", None],
    ),
    "late, each tool's own": (
        [*THREE_TOOLS, *(named(name, name) for name in "cab")],
        ["a", "b", "c"],
    ),
    "late, only a renamed one": ([*THREE_TOOLS, named("b", "b")], [None, None, None]),
    "a handoff under the id of its sibling": (
        [*patch_messages([TWO_TOOLS, named("s", "search"), X]).messages, ai("c9"), X],
        ["s", None, None],
    ),
}

COUNTS = {
    "as many as calls": ([TWO_CALLS, result("1"), result("2")], ["1", "2"]),
    "one too few": ([TWO_CALLS, named("r", "t"), X], [None, None]),
    "one too few, two tools": ([TWO_TOOLS, result("r"), X], [None, None]),
    "one too many": ([TWO_CALLS, result("1"), result("2"), result("3")], ["1", "2"]),
    "two of three": ([ai("c1", "c1", "c1"), result("1"), result("2")], [None, None, None]),
    "one tool whole, one not": (
        [ai(("u", "c1"), ("t", "c1"), ("t", "c1")), named("1", "t"), named("u", "u")],
        ["u", None, None],
    ),
    "a sibling's id": ([ai("c1", ("u", "c2")), result("1"), result("2")], ["1", None]),
    "names of tools only": (
        [ai("c1", "c2"), FunctionMessage("1", name="t"), FunctionMessage("2", name="t")],
        ["1", "2"],
    ),
    "names of tools only, too few": ([ai("c1", "c2"), FunctionMessage("1", name="t")], [None] * 2),
}

FAKE = result(DEEPAGENTS_CANCELLED.format("t", "c1"))
FOREIGN = {
    "before the result": ([A, FAKE, result("r"), X], ["r"]),
    "after it": ([A, result("r"), FAKE, X], ["r"]),
    "late result": ([A, FAKE, X, result("r")], ["r"]),
    "alone": ([A, FAKE, X], [FAKE.content]),
    "of two calls": ([TWO_CALLS, FAKE, result("1"), result("2")], ["1", "2"]),
    "beside one result": ([TWO_CALLS, FAKE, result("2")], [FAKE.content, "2"]),
}

EARLY = {
    "directly before": ([X, result("r"), A], ["r"]),
    "results between": ([named("1", "t"), result("2", "c2"), ai("c1", ("u", "c2"))], ["1", "2"]),
    "a message between": ([result("r"), X, A], [None]),
    "a message of the model between": ([result("r"), AIMessage("hm"), A], [None]),
    "a message with more than results": (
        [result("r"), H([{"type": "tool_result", "tool_use_id": "c9"}, "and"]), A],
        [None],
    ),
    "another tool": ([named("r", "u"), A], [None]),
    "the call has one": ([result("early"), A, result("r")], ["r"]),
    "a call without a name": ([named("r", "u"), ai(("", "c1"))], ["r"]),
    "too few": ([result("r"), TWO_CALLS], [None, None]),
    "an older call of the tool, past another": (
        [A, X, ai(("u", "c1"), id="a2"), X, named("r", "t"), ai("c1", id="a3")],
        [None, None, None],
    ),
    "no older call of the tool": (
        [ai(("u", "c1")), X, named("r", "t"), ai("c1", id="a3")],
        [None, "r"],
    ),
    "a renamed call": ([*turns("u", "t")[:3], named("r", "t"), *turns("u", "t")[3:]], [None, "r"]),
    "a renamed call, past another": (
        [*(two := turns("t", "u", "t"))[:6], named("r", "t"), *two[6:]],
        [None, None, None],
    ),
    "a placeholder": ([marked({"cause": "unknown"}), A], [None]),
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
        ([A, result("1"), result("2")], [("duplicate", "2")]),
        ([TWO_TOOLS, result("whose?")], [("duplicate", "whose?")]),
        ([result("r"), X, ai("c2")], [("orphan", "r")]),
        (
            [*RENAMED, result("2"), result("3")],
            [("superseded", RENAMED[4].text), ("duplicate", "3")],
        ),
        ([A, FAKE, result("r")], [("superseded", FAKE.text)]),
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


def test_f13_a_late_real_result():
    """It takes the placeholder's place; both are whole in the changes."""
    placeholder = patch_messages([A]).messages[1]
    history = [H("q"), A, placeholder, X, result("REAL")]
    patch = patch_messages(history)
    assert patch.messages == [H("q"), A, result("REAL"), X]
    assert [(c.kind, c.defect, c.before) for c in patch.changes] == [
        ("moved", "misplaced", history[4]),
        ("dropped", "superseded", placeholder),
    ]


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
    """Results in another order than the calls, or with status error, are no damage."""
    no = result("rejected", "c2", status="error")
    assert is_quiet([H("q"), ai("c1", "c2"), no, result("approved"), AIMessage("done")])
    assert is_quiet([A, named("r", "alias"), X])
