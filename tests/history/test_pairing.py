"""Which result belongs to which call: the five rules, one table for each."""

from itertools import takewhile

import pytest
from langchain_core.messages import AIMessage, FunctionMessage, SystemMessage, ToolMessage

from langgraph_patch import is_placeholder, patch_messages, validate_messages
from langgraph_patch.history.fields import PLACEHOLDER_KEY
from support.histories import H, ai, is_quiet, made, marked, repaired, result
from support.placeholder_texts import DEEPAGENTS_CANCELLED, both

X = H("x")


def texts(history, **options):
    """The result that each call has in the repaired history; None for a placeholder."""
    messages = patch_messages(history, **options).messages
    assert validate_messages(messages) == []
    found = []
    for index, message in enumerate(messages):
        results = [*takewhile(lambda m: isinstance(m, ToolMessage), messages[index + 1 :])]
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        own = {}
        # A result names its tool if one id is that of several; else they are in call order.
        for place, call in sorted(enumerate(calls), key=lambda each: not each[1]["name"]):
            tools = {c["name"] for c in calls if c["id"] == call["id"]}
            same = [m for m in results if m.tool_call_id == call["id"]]
            named = [m for m in same if len(tools) > 1 and m.name == call["name"]]
            own[place] = (named or same)[0]
            results.remove(own[place])
        found += [own[place] for place in sorted(own)]
    return [None if is_placeholder(each) else each.content for each in found]


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
LEFT = marked({"cause": "awaiting_input"})
LEFT_OF_SEARCH = [LEFT.model_copy(update={"name": "search"})]
THREE_TOOLS = patch_messages([ai(("a", "c1"), ("b", "c1"), ("c", "c1"), id="a1"), X]).messages
FAKE = result(DEEPAGENTS_CANCELLED.format("t", "c1"))
GONE = [ai(("a", "c1"), ("b", "c1"), id="a1"), named("1", "here"), named("2", "here")]
HERE = ai(("here", "c1"), id="a2")
LEFT_HERE = LEFT.model_copy(update={"name": "here"})
RULES = {
    "nearest": [
        ([A, result("1"), X, A2, result("2")], ["1", "2"]),
        ([A, X, A2, X, result("2")], [None, "2"]),
        ([A, X, A2, result("r"), result("r")], [None, "r"]),
        ([A, X, ai(("u", "c1"), id="a2"), named("r", "t")], [None, None]),
        ([A, result("1"), result("2")], [both("1", "2")]),
        ([*RENAMED, result("2")], [None, "2"]),
        ([RENAMED[3], X, A, X, result("r")], [None, "r"]),
        ([ai("t_deadbeef", id="a1"), X, result("r", "t")], [None]),
        ([A, X, ai(("u", "c2")), result("2", "c2"), FunctionMessage("r", name="t")], ["r", "2"]),
        ([*turns("t", "t", call_id="t"), ai("t_0"), result("r", "t")], [None, "r", None]),
    ],
    "names": [
        ([TWO_TOOLS, named("w", "write")], [None, "w"]),
        ([TWO_TOOLS, named("s", "search"), named("w", "write"), result("?")], ["s", "w"]),
        ([TWO_TOOLS, named("1", "write"), named("2", "write")], ["1", "2"]),
        ([TWO_TOOLS, named("1", "write"), X, named("2", "write")], [None, "1"]),
        ([ai(("u", "c1")), result("1"), ai(("t", "c1")), named("2", "u"), X], ["1", "2"]),
        ([ai(("u", "c1")), X, ai(("t", "c1")), named("2", "u"), X], [None, None]),
        ([ai(("", "c1")), X, A2, X, ai(("", "c1"), id="a3"), named("r", "t")], [None, None, "r"]),
        ([ai(("", "c1"), ("t", "c1")), named("1", "t"), named("2", "t")], ["2", "1"]),
        ([A, named("r", "my_agent"), X], ["r"]),
        ([A, X, AIMessage("hm"), named("r", "my_agent")], [None]),
        ([*THREE_TOOLS, *(named(name, name) for name in "cab")], ["a", "b", "c"]),
    ],
    "names that a handoff wrote": [
        ([*GONE, HERE, named("r", "here")], ["1", "2", "r"]),
        ([*GONE, HERE, named("r", "here"), X, named("3", "here")], ["1", "2", both("r", "3")]),
        ([*GONE, X, HERE, X, named("r", "here"), X], ["1", "2", "r"]),
        ([GONE[0], X, named("1", "here"), HERE, named("r", "here")], [None, None, "r"]),
        ([ai(("t", "c1")), X, ai(("u", "c1")), named("r", "t")], [None, None]),
        ([GONE[0], GONE[1], LEFT_HERE, HERE, named("r", "here")], ["1", None, "r"]),
        ([GONE[0], LEFT_HERE, GONE[2], HERE, named("r", "here")], [None, "2", "r"]),
    ],
    "counts": [
        ([TWO_CALLS, named("r", "t"), X], [None, None]),
        ([TWO_CALLS, result("1"), result("2"), result("3")], ["1", "2"]),
        (
            [ai(("u", "c1"), ("t", "c1"), ("t", "c1")), named("1", "t"), named("u", "u")],
            ["u", None, None],
        ),
        ([ai("c1", "c2"), *(FunctionMessage(n, name="t") for n in "12")], ["1", "2"]),
        ([ai("c1", "c2"), FunctionMessage("1", name="t")], [None, None]),
    ],
    "placeholders of this package": [
        ([TWO_CALLS, named("1", "t"), LEFT, X], ["1", None]),
        ([TWO_CALLS, LEFT, named("2", "t"), X], [None, "2"]),
        ([TWO_CALLS, LEFT, LEFT, named("?", "t"), X], [None, None]),
        ([TWO_CALLS, LEFT, named("2", "t"), named("late", "t"), X], [None, "2"]),
        ([TWO_CALLS, LEFT, named("2", "t"), X, named("late", "t")], [None, "2"]),
        ([TWO_CALLS, LEFT, LEFT, named("1", "t"), named("2", "t"), X], ["1", "2"]),
        ([TWO_TOOLS, named("w", "write"), *LEFT_OF_SEARCH, named("s", "search")], ["s", "w"]),
        ([TWO_TOOLS, *LEFT_OF_SEARCH, result("w"), X, result("late")], [None, "w"]),
    ],
    "placeholders of others": [
        ([A, FAKE, X, result("r")], ["r"]),
        ([TWO_CALLS, FAKE, result("1"), result("2")], ["1", "2"]),
        ([TWO_CALLS, FAKE, result("2")], [FAKE.content, None]),
    ],
    "results before calls": [
        ([named("1", "t"), result("2", "c2"), ai("c1", ("u", "c2"))], ["1", "2"]),
        ([result("r"), X, A], [None]),
        ([result("far"), X, result("near"), A, X], ["near"]),
        ([marked({"cause": "unknown"}), A], [None]),
        ([result("r"), H([{"type": "tool_result", "tool_use_id": "c9"}, "and"]), A], [None]),
        ([named("r", "u"), A], [None]),
        ([named("r", "u"), ai(("", "c1"))], ["r"]),
        ([result("r"), TWO_CALLS], [None, None]),
        ([A, X, ai(("u", "c1"), id="a2"), X, named("r", "t"), ai("c1", id="a3")], [None] * 3),
        ([*turns("u", "t")[:3], named("r", "t"), *turns("u", "t")[3:]], [None, "r"]),
        ([*(two := turns("t", "u", "t"))[:6], named("r", "t"), *two[6:]], [None] * 3),
    ],
}


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_of_pairing(rule):
    """The calls get these results, and no other; None is a placeholder."""
    expected = [found for _, found in RULES[rule]]
    assert [texts(history) for history, _ in RULES[rule]] == expected
    assert [texts(patch_messages(history).messages) for history, _ in RULES[rule]] == expected


def test_what_is_not_paired_is_dropped():
    """As a duplicate or an orphan, whole in the changes; a placeholder as superseded."""
    for history, expected in (
        ([TWO_TOOLS, result("whose?")], ("duplicate", "whose?")),
        ([result("r"), X, ai("c2")], ("orphan", "r")),
        ([marked({"cause": "unknown"}, "old"), X, A], ("superseded", "old")),
        ([result("Paris", "w:0"), AIMessage("hm"), X, ai("w:0")], ("duplicate", "Paris")),
    ):
        changes = patch_messages(history).changes
        dropped = [(c.defect, c.before.text) for c in changes if c.kind == "dropped"]
        assert dropped == [expected]


def test_a_placeholder_is_not_given_to_a_later_call():
    """What it says is true of its own call alone."""
    old = marked({"cause": "awaiting_input"}, "waited")
    for between in ([], [SystemMessage("s")]):
        *_, written = repaired([old, *between, A2])
        assert written.additional_kwargs[PLACEHOLDER_KEY]["cause"] == "unknown"


def test_answered_calls_are_left_alone():
    """Results in another order, or with status error, stay, also beside other damage."""
    no = result("rejected", "c2", status="error")
    history = [H("q"), ai("c1", "c2"), no, result("approved"), AIMessage("done")]
    assert is_quiet(history)
    assert repaired([*history, ai("c3")]) == [*history, ai("c3"), made("c3")]
    assert is_quiet([A, named("r", "alias"), X])


def test_a_result_is_not_that_of_a_call_which_cannot_be_run():
    """Two calls with one id and tool, of which one was cut off: the other one has run."""
    cut = {"name": "f", "args": '{"n": 1', "id": "c1", "error": "cut", "type": "invalid_tool_call"}
    whole = {"name": "f", "args": {"n": 2}, "id": "c1"}
    message = AIMessage("", tool_calls=[whole], invalid_tool_calls=[cut])
    result = ToolMessage("did 2", name="f", tool_call_id="c1")
    patch = patch_messages([message, result])
    assert [change.kind for change in patch.changes] == ["promoted", "inserted"]
    assert patch.messages[1] is result
