"""Placeholders: their ids and markers, the application's own texts, and those of others."""

import pytest
from langchain_core.messages import AIMessage

from langgraph_patch import DanglingCall, is_placeholder, patch_messages
from langgraph_patch.errors import OptionError
from langgraph_patch.history.fields import PLACEHOLDER_KEY
from langgraph_patch.history.findings import Finding
from support import placeholder_texts as en
from support.histories import (
    H,
    ai,
    invalid_of,
    is_quiet,
    made,
    marked,
    repaired,
    result,
    with_field,
)

A, X = ai("c1", id="a1"), H("x")
CUT = with_field(AIMessage("", id="a2"), invalid_tool_calls=[invalid_of('{"a', "c2")])
ID = "patch-b0548b6649fd775f9d4da1d00f4d5551"


def placeholders(history, **options):
    """The placeholders in the repaired history."""
    return [m for m in patch_messages(history, **options).messages if is_placeholder(m)]


def test_ids_are_made_of_message_call_and_position():
    """The same in every process, whatever the text, the cause and other messages are."""
    histories = [[A], [ai("c2", id="a1")], [ai("c1", id="a2")], [ai("c1")]]
    ids = [placeholders(history)[0].id for history in histories]
    assert ids[0] == ID
    assert len(set(ids)) == 4
    assert placeholders([H("q"), A, X], placeholder="gone")[0].id == ID
    assert placeholders([A], evidence={(0, 0): Finding("failed", error="x")})[0].id == ID
    siblings = placeholders([ai("c1", "c1", "c1")])
    assert len({message.id for message in siblings}) == 3


def test_is_placeholder():
    """A `ToolMessage` whose marker has the cause of a placeholder, whatever its text."""
    own = {PLACEHOLDER_KEY: {"cause": "unknown"}}
    markers = {"cause": "reconciled"}, {"not_kept": ["files"]}, {"cause": ["unknown"]}, None
    others = [result("x"), H("x", additional_kwargs=own), *map(marked, markers)]
    assert not any(map(is_placeholder, others))
    assert is_placeholder(marked({"cause": "not_started", "look_again": True}))
    assert PLACEHOLDER_KEY == "langgraph_patch"  # it is in stored threads


def test_the_marker_has_what_machines_need():
    """Of a placeholder and of a recovered result, which is a real one for later repairs."""
    real, mine = result("r"), result("r", additional_kwargs={"mine": 1})
    for finding, extra in (
        (Finding(look_again=True), {PLACEHOLDER_KEY: {"cause": "unknown", "look_again": True}}),
        (Finding(inner=("a", "b")), {PLACEHOLDER_KEY: {"cause": "unknown", "inner": 2}}),
        (Finding(result=real, not_kept=("a",)), {PLACEHOLDER_KEY: {"not_kept": ["a"]}}),
        (Finding(result=real, is_reconciled=True), {PLACEHOLDER_KEY: {"cause": "reconciled"}}),
        (Finding(result=mine), {"mine": 1}),
    ):
        found = patch_messages([A, X], evidence={(0, 0): finding}).messages
        assert found[1].additional_kwargs == extra
        assert is_placeholder(found[1]) is (finding.result is None)
        assert is_quiet(found)


@pytest.mark.parametrize("text", ["", '{0.__class__}{}{"a": 1}%s{name!r}{', "x" * 10_000])
def test_one_text_is_used_for_every_cause(text):
    """However long, only with name and id filled in; a mapping may be partial."""
    given, expected = text + "{name} ({id})", text + "t (c1)"
    found = placeholders([A, CUT, X], placeholder=given)
    assert [message.content for message in found] == [expected, text + "t (c2)"]
    causes = [message.additional_kwargs[PLACEHOLDER_KEY]["cause"] for message in found]
    assert causes == ["unknown", "malformed"]
    found = placeholders([A, CUT, X], placeholder={"unknown": given})
    assert [message.content for message in found] == [expected, en.MALFORMED.format("t", "c2")]
    assert placeholders([A], placeholder=lambda _: given)[0].content == given


@pytest.mark.parametrize("placeholder", ["{tool} was cut", {"unknown": "{error}"}])
def test_a_field_that_no_text_has_is_an_error(placeholder):
    """A callable knows more than the two."""
    with pytest.raises(OptionError, match=r"no field \{\w+\}: expected \{name\} of the tool"):
        patch_messages([A, X], placeholder=placeholder)


def test_what_a_callable_raises_says_whose_it_is():
    """The error is its own."""
    with pytest.raises(ZeroDivisionError) as raised:
        patch_messages([A, X], placeholder=lambda _: 1 / 0)
    assert raised.value.__notes__ == [
        "langgraph-patch: raised by the function placeholder of the application"
    ]


def test_a_callable_receives_everything():
    """Once for each call without a result, in the order of the history."""
    paid = ai(("t", "c1", {"amount": 3}))
    failed = Finding("failed", error="e", detail="timeout", inner=("a",))
    found = placeholders([paid, CUT, X], placeholder=repr, evidence={(0, 0): failed})
    first = DanglingCall("c1", "t", {"amount": 3}, "failed", "e", paid, 0, "timeout", ("a",))
    second = DanglingCall("c2", "t", {}, "malformed", '{"a', CUT, 1)
    assert [message.content for message in found] == [repr(first), repr(second)]


def test_a_callable_may_return_a_message():
    """It keeps what it says, and gets our id, marker and call id."""
    fields = {"name": "other", "status": "success", "artifact": {"a": 1}}
    own = result("gone", "what", id="mine", additional_kwargs={"mine": True}, **fields)
    [found] = placeholders([A], placeholder=lambda _: own)
    extra = {"mine": True, PLACEHOLDER_KEY: {"cause": "unknown"}}
    assert found == result("gone", id=ID, additional_kwargs=extra, **fields)
    assert own.additional_kwargs == {"mine": True}


def test_a_callable_that_raises_or_returns_anything_else():
    """Its own error reaches the caller; or one with what was returned, and for which call."""
    with pytest.raises(StopIteration):
        patch_messages([A, X], placeholder=lambda _: next(iter(())))
    for returned in (None, H("x")):
        words = r"returned .* for tool call 'c1': expected a str or a ToolMessage"
        with pytest.raises(OptionError, match=words) as caught:
            patch_messages([A], placeholder=lambda _, returned=returned: returned)
        assert repr(returned) in str(caught.value)


THEIRS = en.DEEPAGENTS_CANCELLED, en.DEEPAGENTS_MALFORMED, en.DEEPAGENTS_INCOMPLETE
DEEPAGENTS = [text.format("t", "c1") for text in THEIRS]
FOREIGN = [
    *(result(text, id="x", status="error") for text in DEEPAGENTS),
    result("?", id="x", additional_kwargs={"orphan_tool_call_placeholder": True}),
]


def test_placeholders_of_other_packages():
    """They stay, unless a result of the call is stored or recorded."""
    real = result("r", id="y")
    evidence = {(0, 0): Finding(result=real)}
    for foreign in FOREIGN:
        history = [A, foreign, X]
        assert is_quiet(history)
        assert repaired([*history, result("r")]) == [A, result("r"), X]
        assert repaired([A, result("r"), foreign]) == [A, result("r")]
        assert repaired(history, evidence=evidence) == [A, real, X]
        unknown = {(0, 0): Finding("failed", error="x", inner=("a",))}
        assert patch_messages(history, evidence=unknown).messages is history


def test_results_that_only_quote_a_placeholder_stay():
    """The whole text or the mark, nothing less; and our marker counts before it."""
    assert is_quiet([A, marked({"cause": "failed"}, DEEPAGENTS[0])])
    for genuine in (
        result(f"{DEEPAGENTS[0]} Or was it?"),
        result([{"type": "text", "text": DEEPAGENTS[0]}]),
        result("?", additional_kwargs={"orphan_tool_call_placeholder": False}),
    ):
        assert is_quiet([A, genuine])


CHAT_UI = "Successfully handled tool call."


def test_what_known_clients_invent_is_replaced():
    """By a placeholder, a finding or the real result; the fake stays in the change."""
    real = result("wired 3", id="y")
    stub = result('{"cancelled":true}', name="t", status="error")  # A13: of assistant-ui 0.3
    for fake in (result(CHAT_UI, id="do-not-render-17"), result('{"cancelled":true}'), stub):
        history = [A, fake, X]
        assert repaired(history) == [A, made("c1"), X]
        assert [c.before for c in patch_messages(history).changes] == [fake]
        assert repaired(history, evidence={(0, 0): Finding(result=real)}) == [A, real, X]
        assert repaired([*history, real]) == [A, real, X]


def test_what_a_tool_may_return_is_no_fake():
    """agent-chat-ui marks its ids, Python writes JSON with spaces, a ToolNode names the tool."""
    for genuine in (
        *(result(CHAT_UI), result('{"cancelled": true}'), result('{"cancelled":false}')),
        *(result('{"cancelled":true}', name="t"), result(["a"], id="do-not-render-17")),
    ):
        history = [A, genuine, X]
        assert patch_messages(history).messages is history
        assert not patch_messages(tuple(history))


@pytest.mark.parametrize("status", ["success", "error"])
def test_a_result_that_reads_like_an_invention_is_real_in_its_own_turn(status):
    """Clients send theirs in front of a human message; a tool node may write no name."""
    said = result('{"cancelled":true}', status=status)
    for behind in ([], [AIMessage("done")], [AIMessage("done"), H("x")]):
        history = [H("q"), ai("c1"), said, *behind]
        assert patch_messages(history).messages is history
    sent = patch_messages([H("q"), ai("c1"), said, H("x")])
    assert is_placeholder(sent.messages[2])
