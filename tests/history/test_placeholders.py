"""Placeholders: their ids and markers, the application's own texts, and those of others."""

import pytest
from langchain_core.messages import AIMessage

from langgraph_patch import Finding, is_placeholder, patch_messages
from langgraph_patch.errors import OptionError
from langgraph_patch.history.fields import PLACEHOLDER_KEY
from langgraph_patch.history.patch import changes_history, read_if_damaged
from langgraph_patch.history.placeholders import differ_in_marker_only
from langgraph_patch.history.repair import patch_reading
from support import placeholder_texts as en
from support.histories import H, ai, is_quiet, marked, result

A, X = ai("c1", id="a1"), H("x")
ID = "patch-b0548b6649fd775f9d4da1d00f4d5551"


def placeholders(history, **options):
    """The placeholders in the repaired history."""
    return [m for m in patch_messages(history, **options).messages if is_placeholder(m)]


@pytest.mark.parametrize("placeholder", ["{tool} was cut", {"unknown": "{error}"}])
def test_a_field_that_no_text_has_is_an_error(placeholder):
    """A callable knows more than the two."""
    with pytest.raises(OptionError, match=r"no field \{\w+\}: expected \{name\} of the tool"):
        patch_messages([A, X], placeholder=placeholder)


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


THEIRS = en.DEEPAGENTS_CANCELLED, en.DEEPAGENTS_MALFORMED, en.DEEPAGENTS_INCOMPLETE, en.AWS
FOREIGN = [text.format("t", "c1") for text in THEIRS]


@pytest.mark.parametrize("text", FOREIGN)
def test_a_placeholder_of_another_package_gives_way_to_a_result(text):
    """It is known by its whole text, with or without a name; and stays until then."""
    for stored in (result(text, name="t"), result(text)):
        assert is_quiet([A, stored, X])
        [_, found, _] = patch_messages([A, stored, X, result("r")]).messages
        assert found.content == "r"


def test_results_that_only_quote_a_placeholder_stay():
    """The whole text or the mark, nothing less; and our marker counts before it."""
    assert is_quiet([A, marked({"cause": "failed"}, FOREIGN[0])])
    others = [text.format(*names) for text in THEIRS for names in (("u", "c1"), ("t", "c2"))]
    for genuine in (
        *(result(text, name="t") for text in others),
        result(f"{FOREIGN[0]} Or was it?"),
        result([{"type": "text", "text": FOREIGN[0]}]),
        result("?", additional_kwargs={"orphan_tool_call_placeholder": False}),
    ):
        finding = Finding(result=result("found"))
        assert is_quiet([A, genuine], evidence={(0, 0): finding})
    theirs = result('{"cancelled":true}', name=None, status="error")
    assert is_quiet([A, theirs, AIMessage("hm")], evidence={(0, 0): finding})


@pytest.mark.parametrize("fields", [{}, {"status": "error", "name": "t"}])
def test_what_a_client_may_have_invented_stays(fields):
    """A tool may have returned it: it is searched for once, and gives way to a result only."""
    theirs = result('{"cancelled":true}', id="m1", **fields)
    history = [A, theirs, X]
    assert is_quiet(history)
    assert patch_messages([*history, result("r")]).messages[1].content == "r"
    assert read_if_damaged(history) is None
    reading = read_if_damaged(history, look_again=True)
    assert [call.id for call in reading.unanswered] == ["c1"]
    for nothing in (Finding(), Finding("failed", error="no"), Finding(result=theirs)):
        patch = patch_reading(reading, evidence={(0, 0): nothing})
        assert differ_in_marker_only(theirs, patch.messages[1])
        assert not changes_history(patch)
        assert read_if_damaged(patch.messages, look_again=True) is None
    later = patch_reading(reading, evidence={(0, 0): Finding(look_again="k1")})
    again = read_if_damaged(later.messages, look_again=True)
    assert again.looked_for_again == {(0, 0): "k1"}
    assert not patch_reading(again, evidence={(0, 0): Finding(look_again="k1")})
    known = patch_reading(again, evidence={(0, 0): Finding(result=result("sent"))})
    assert known.messages[1].content == "sent"


def test_one_text_about_a_call_inside_is_more_than_none():
    """A placeholder that lists nothing inside its call gives way; one that lists as much stays."""
    found = Finding(inner=("mail: sent",))
    key = {(0, 0): found}
    [stored] = placeholders([A, X])
    [better] = placeholders([A, stored, X], evidence=key)
    assert "mail: sent" in better.text
    assert is_quiet([A, better, X], evidence=key)
