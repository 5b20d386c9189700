"""Several results of one call are told in one message; what a client sends again is known."""

import copy

import pytest
from langchain_core.messages import FunctionMessage
from langgraph.graph.message import add_messages

from langgraph_patch import patch_messages, set_language, validate_messages
from langgraph_patch.history.fast_check import is_valid
from langgraph_patch.history.fields import PLACEHOLDER_KEY
from langgraph_patch.history.joining import MOST_TOLD
from support.histories import H, ai, kinds, result, work
from support.placeholder_texts import ANOTHER, DEEPAGENTS_CANCELLED, LEFT_OUT, both

A, X = ai("c1", id="a1"), H("x", id="h1")
IMAGE = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
TEXT = {"type": "text", "text": "a"}
LINE = {"type": "text", "text": ANOTHER}


def r(content, number=1, **fields):
    """The result with the id `m{number}`."""
    return result(content, id=f"m{number}", **fields)


def told(*history):
    """The one result in a repaired history, which stays as it is."""
    messages = patch_messages([*history]).messages
    assert patch_messages(messages).messages is messages
    assert is_valid(messages)
    [found] = [message for message in messages if message.type == "tool"]
    return found


TEXTS = {
    "a rejection and a receipt": ([r("rejected"), r("paid 5", 2)], both("rejected", "paid 5")),
    "one without a name": ([r("a", name="t"), r("b", 2)], both("a", "b")),
    "equal texts": ([r("a"), r(" a\n", 2), r([TEXT], 3)], "a"),
    "equal JSON": ([r('{"a": [1], "b": 2}'), r('{"b":2,"a":[1]}', 2)], '{"a": [1], "b": 2}'),
    "true and 1, 1 and 1.0": ([r("1"), r("true", 2), r("1.0", 3)], both("1", "true", "1.0")),
    "no object and no list": ([r("{}"), r("[]", 2)], both("{}", "[]")),
    "JSON that is too deep": ([r("[" * 9_999), r("[", 2)], both("[" * 9_999, "[")),
    "blank ones": ([r(""), r(" ", 2), r("a", 3), r([{**TEXT, "text": "\n"}], 4)], "a"),
    "only blank ones": ([r(""), r(" ", 2)], ""),
    "a placeholder": ([r(DEEPAGENTS_CANCELLED.format("t", "c1"), name="t"), r("a", 2)], "a"),
    "behind other messages": ([r("running"), X, r("ended: 42", 2)], both("running", "ended: 42")),
    "blocks": ([r("a"), r([IMAGE], 2)], [TEXT, LINE, IMAGE]),
    "equal blocks": ([r([TEXT, IMAGE]), r([dict(TEXT), dict(IMAGE)], 2)], [TEXT, IMAGE]),
    "not a ToolMessage": (
        [H([{"type": "tool_result", "tool_use_id": "c1", "content": "a"}]), r("b", 2)],
        both("a", "b"),
    ),
    "a line that imitates": ([r(both("a", "b")), r("b", 2), r("c", 3)], both("a", "b", "c")),
    "a text of such lines": ([r(both("", "", "a")), r(ANOTHER, 2), r("b", 3)], both("a", "b")),
    "one id for two": ([r("10 %"), r("20 %")], "20 %"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_each_different_result_is_told_once(case):
    """In their order, in one message, whatever form they have."""
    history, expected = TEXTS[case]
    assert told(A, *history).content == expected


def test_what_the_message_with_several_results_is():
    """It has the id of the last and the newest artifact; it is an error if all of them are."""
    error = {"status": "error"}
    one = told(A, r("a", artifact=7, name="t", **error), r("b", 2))
    assert (one.id, one.name, one.status, one.artifact) == ("m2", "t", "success", 7)
    assert told(A, r("a", **error), r("b", 2, **error)).status == "error"
    history = [A, r("a"), r("b", 2), r("b", 3), X]
    assert kinds(history) == ["joined"] * 3
    assert [change.defect for change in validate_messages(history)] == ["duplicate"] * 3
    changes = patch_messages(history).changes
    assert [c.before.id for c in changes] == ["m1", "m2", "m3"]
    assert {c.after.text for c in changes} == {both("a", "b")}
    assert kinds([A, FunctionMessage("a", name="t", id="f"), r("b", 2)]) == ["dropped"]


def test_a_known_result_replaces_its_own_part():
    """A redaction, progress; an old copy of it changes nothing, and an edit of the text stays."""
    one = told(A, r("secret"), r("ended", 2))
    redacted = told(A, one, X, r("[redacted]"))
    assert redacted.text == both("[redacted]", "ended")
    assert told(A, redacted, X, r("secret")) == redacted
    assert told(A, redacted, X, r("more", 3)).text == both("[redacted]", "ended", "more")
    assert told(A, one, r("")).text == "ended"
    assert told(A, one, r("ended")).text == "ended"
    cleared = one.model_copy(update={"content": "[cleared]"})
    assert told(A, cleared, X, r("secret")) == cleared
    assert told(*add_messages([A, one], [r("[all]", 2)])).text == "[all]"
    set_language("zh")
    assert told(A, one, X, r("secret")) == one
    set_language("en")


@pytest.mark.parametrize("form", ["all", "what the state does not have", "without marks"])
def test_a_client_that_sends_again_what_it_has_adds_nothing(form):
    """Whatever it merges by id, in each turn both results are told once."""
    client = {m.id: m for m in (r("running"), r("ended: 42", 2))}
    state, sizes = patch_messages([A, *client.values()]).messages, set()
    for turn in range(6):
        ids = {message.id for message in state} if form.startswith("what") else ()
        sent = [copy.deepcopy(message) for key, message in client.items() if key not in ids]
        state = add_messages(state, [*sent, H("?", id=f"q{turn}")])
        state = patch_messages(state).messages
        sizes.add(len(state[1].text))
        if form != "all":
            kept = {} if form == "without marks" else state[1].additional_kwargs
            client[state[1].id] = r(state[1].text, state[1].id[1:], additional_kwargs=kept)
        assert {"running", "ended: 42"} <= {*state[1].text.splitlines()}
    assert sizes == {len(both("running", "ended: 42"))}


def test_the_first_and_the_newest_of_many_are_told():
    """In time that is linear, also if one comes in each turn; those left out are known by id."""
    all_of_them = [r(f"{number} %", number) for number in range(300)]
    one = told(A, *all_of_them)
    newest = both(*(f"{number} %" for number in range(301 - MOST_TOLD, 300)))
    assert one.text == f"0 %\n{LEFT_OUT}\n{newest}"
    turn_by_turn = [A]
    for each in all_of_them:
        turn_by_turn = patch_messages([*turn_by_turn, each, X]).messages
    assert turn_by_turn[1].text == one.text
    assert told(A, one, *all_of_them) == one
    small, large = (
        work(patch_messages, [A, *(r(f"{n % 7} of {n}", n % count) for n in range(count * 2))])
        for count in (200, 400)
    )
    assert large <= 2.2 * small


@pytest.mark.parametrize(
    "mark",
    [
        *(None, 7, "m1", ["m1"], {"m1": 7}, {"m1": []}, {"m9": [[], {}, 7]}, {"": []}),
        *({"m2": []}, {"m3": ["x"]}, {f"m{number}": [] for number in range(1_000)}),
    ],
)
def test_a_hostile_mark_hides_nothing(mark):
    """A mark comes from a database or a client: what is told is what the messages say."""
    forged = r("a", 2, additional_kwargs={PLACEHOLDER_KEY: {"results": mark}})
    for history in ([forged, X, r("b", 3)], [r("b", 3), X, forged]):
        assert {*told(A, *history).text.splitlines()} == {"a", ANOTHER, "b"}


def test_a_result_of_another_tool_is_not_told_where_ids_are_used_again():
    """A handoff writes its name into all results of its id; the call of one may be deleted."""
    others = [r("to bob", name="to_alice"), r("to alice", 2, name="to_alice")]
    history = [A, r("done", 3), X, ai("c1", id="a2"), *others, H("y", id="h2")]

    def results(of):
        return [m.text for m in patch_messages(of).messages if m.type == "tool"]

    assert results(history) == ["done", "to bob"]
    assert results([A, *others]) == [both("to bob", "to alice")]
