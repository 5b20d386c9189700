"""A patch as HTML: whatever stands in a history is shown as text."""

import html
import re
from html.parser import HTMLParser

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from strict import ai

from langgraph_patch import patch_messages
from langgraph_patch.render import FOLD, SIGNS, page, patch_html, report_html

HOSTILE = [
    "<script>alert(1)</script>",
    "</pre></li><img src=x onerror=alert(1)>",
    "\"' onmouseover='alert(1)",
    "\x1b[2J\x1b]0;owned\x07",
    "a\x00b\x85c\u202egnp.exe",
    "\ud800 half a character",
]


class Tags(HTMLParser):
    """Collects the tags and attributes of a page."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes = set(), set()

    def handle_starttag(self, tag, attrs):
        """Note one tag."""
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)


def tags_of(fragment):
    """Read a fragment as a browser would."""
    parser = Tags()
    parser.feed(fragment)
    return parser


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_makes_no_markup_and_no_control_character(hostile):
    """In a content, an id or a name, hostile text adds no tag, attribute or raw control."""
    history = [
        HumanMessage(hostile, id=hostile),
        ai((hostile, {"x": hostile}, hostile), id="a"),
        ToolMessage(hostile, tool_call_id=hostile, id="t"),
    ]
    shown = page(hostile, [patch_messages(history)._repr_html_()])
    plain = page("x", [patch_messages([HumanMessage("x"), ai(("t", {}, "c"))])._repr_html_()])
    assert tags_of(shown).tags <= tags_of(plain).tags | {"details", "summary"}
    assert tags_of(shown).attributes == tags_of(plain).attributes
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800]", shown)
    shown.encode()


def test_a_page_loads_and_runs_nothing():
    """A page has a policy that forbids everything but its own style."""
    shown = page("t", [patch_messages([ai(("t", {}, "c1"))])._repr_html_()])
    assert "default-src 'none'" in html.unescape(shown)
    assert not {"script", "img", "link", "iframe", "a"} & tags_of(shown).tags


def test_each_change_has_its_sign_and_its_word():
    """Inserted, moved, dropped, converted and renamed are told by sign and word, on both sides."""
    history = [
        ToolMessage("gone", tool_call_id="nobody", id="o"),
        ai(("a", {}, "c1"), ("b", {}, "c 2"), ("c", {}, "c3"), id="m"),
        HumanMessage("steer", id="h"),
        ToolMessage("late", tool_call_id="c1", id="r"),
        HumanMessage([{"type": "tool_result", "tool_use_id": "c3", "content": "x"}], id="w"),
    ]
    shown = patch_html(patch_messages(history).to_dict())
    for kind in ("inserted (unknown)", "moved", "dropped", "converted", "renamed"):
        assert f"{SIGNS[kind.split()[0]]} {kind}" in shown, kind
    assert "Before (5)" in shown
    assert "After (5)" in shown


def test_long_content_is_folded_and_whole():
    """A text of a megabyte is folded behind its beginning, and nothing of it is missing."""
    long = "x" * 1_000_000
    shown = patch_html(patch_messages([ai(("t", {}, "c1")), HumanMessage(long)]).to_dict())
    assert shown.count("<details>") == 2
    assert f"<summary>{'x' * FOLD}… (1,000,000 characters)</summary>" in shown
    assert f"<pre>{long}</pre>" in shown


def test_a_sound_history_says_so():
    """Where nothing was done the page says so instead of showing two equal columns."""
    assert "Nothing to repair in 1 messages." in patch_html(
        patch_messages([AIMessage("hi")]).to_dict()
    )


def test_a_report_shows_its_facts_and_its_patch():
    """A report is a table of its facts and, if there is one, the patch."""
    patch = patch_messages([ai(("t", {}, "c1"))]).to_dict()
    shown = report_html({"thread_id": "<1>", "status": "damaged", "error": None, "patch": patch})
    assert "&lt;1&gt;" in shown
    assert "damaged" in shown
    assert "error" not in re.sub(r"<style>.*?</style>", "", shown, flags=re.DOTALL)
    assert "inserted (unknown)" in shown
