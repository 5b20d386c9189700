"""A patch as HTML: everything in a history is shown as text."""

import html
import re
from html.parser import HTMLParser

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langgraph_patch import patch_messages, validate_messages
from langgraph_patch.history.texts import Finding
from langgraph_patch.render.comparison import SIGNS
from langgraph_patch.render.html import (
    index_body,
    index_row,
    page,
    patch_html,
    report_body,
    report_html,
)
from langgraph_patch.render.html_messages import FOLD
from langgraph_patch.render.style import STYLE
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport
from support.strict import ai

HOSTILE = [
    "<script>alert(1)</script>",
    "</pre></li><img src=x onerror=alert(1)>",
    "\"' onmouseover='alert(1)",
    "\x1b[2J\x1b]0;owned\x07",
    "a\x00b\x85c\u202egnp.exe",
    "\ud800 half a character",
    "\u061c\u2066turned\u2069\u200b\U000e0041",
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
    shown = a_page(hostile, [patch_messages(history)._repr_html_(), *reports(history, hostile)])
    valid = [HumanMessage("x"), ai(("t", {}, "c"))]
    plain = a_page("x", [patch_messages(valid)._repr_html_(), *reports(valid, "x")])
    assert tags_of(shown).tags == tags_of(plain).tags
    assert tags_of(shown).attributes == tags_of(plain).attributes
    assert not RAW.search(shown)
    shown.encode()


def a_page(title, bodies):
    """A whole page, with a footer."""
    return "".join(page(title, bodies, footer=title))


RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0041]"
)


def reports(history, name):
    """A thread of that name as a report, in every status."""
    evidence = {"checkpoint_id": name, "age": 1.5, "messages": len(history), "reason": name}
    defects = tuple(validate_messages(history))
    patch = patch_messages(history)
    dumped = patch.to_dict()["before"]
    yield ThreadReport(
        name, name, "damaged", defects=defects, patch=patch, **evidence
    )._repr_html_()
    for status in ("healthy", "paused", "unreadable"):
        asks = (name, {"question": name}, {name: name})
        report = ThreadReport(name, name, status, defects=defects, asks=asks, **evidence)
        yield report._repr_html_()
        yield report_html(report.to_dict(), dumped)
        yield index_row(report.to_dict(), name)
    yield ThreadRepair(name, name, "repaired", name, patch, name, name)._repr_html_()


def test_a_page_loads_and_runs_nothing():
    """A page has a policy that forbids everything but its own style."""
    rows = [index_row(ThreadReport("1", "", "healthy").to_dict(), "threads/1.html")]
    bodies = [patch_messages([ai(("t", {}, "c1"))])._repr_html_(), *index_body({}, rows)]
    shown = a_page("t", bodies)
    assert "default-src 'none'" in html.unescape(shown)
    assert not {"script", "img", "link", "iframe"} & tags_of(shown).tags
    links = re.findall(r"""href=["']([^"']*)["']""", shown)
    assert {link[0] for link in links} == {"#", "t"}  # to a place on the page, or to its neighbour
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_each_change_has_its_sign_and_its_word():
    """Inserted, moved, dropped, converted and renamed have a sign and a word, on both sides."""
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
        assert f'<td class="{kind.split()[0]}"' in shown, kind
    assert "Before (5)" in shown
    assert "After (5)" in shown


def test_long_content_is_folded_and_whole():
    """A text of a megabyte is folded behind its beginning, and nothing of it is missing."""
    long = "x" * 1_000_000
    shown = patch_html(patch_messages([ai(("t", {}, "c1")), HumanMessage(long)]).to_dict())
    assert shown.count("<details>") == 2
    assert f"<summary><span>{'x' * FOLD}…</span> (1,000,000 characters)</summary>" in shown
    assert f"<pre>{long}</pre>" in shown


def test_a_valid_history_is_labelled_valid():
    """Where nothing was done the page says so instead of showing two equal columns."""
    assert "Nothing to repair in 1 messages." in patch_html(
        patch_messages([AIMessage("hi")]).to_dict()
    )


def rows_of(shown):
    """The rows of the comparison: left and right, each cell as (head, label)."""
    return [
        tuple(re.sub(r"<pre>.*|<[^>]*>", " ", cell, flags=re.DOTALL).split() for cell in cells)
        for cells in re.findall(
            r"<tr>(<td class=[^>]*>.*?</td>)(<td class=[^>]*>.*?</td>)</tr>", shown
        )
    ]


def test_a_message_is_beside_itself():
    """What is new, dropped or moved has a gap beside it; everything else has its like."""
    history = [
        HumanMessage("hi", id="h0"),
        ai(("a", {}, "c1"), ("b", {}, "c2"), id="m"),
        HumanMessage("steer", id="h"),
        ToolMessage("late", tool_call_id="c1", id="r"),
        ToolMessage("late again", tool_call_id="c1", id="r2"),
    ]
    report = ThreadReport("1", "", "damaged", defects=tuple(validate_messages(history)),
                          patch=patch_messages(history))  # fmt: skip
    assert rows_of(report._repr_html_()) == [
        (["#0", "human"], ["from", "#0", "human"]),
        (["#1", "ai", "!", "dangling"], ["from", "#1", "ai"]),
        ([], ["→", "moved", "from", "#3", "tool", "for", "c1"]),
        ([], ["+", "inserted", "(unknown)", "new", "tool", "for", "c2"]),
        (["#2", "human"], ["from", "#2", "human"]),
        (["→", "moved", "#3", "tool", "for", "c1", "!", "misplaced"], []),
        (["−", "dropped", "#4", "tool", "for", "c1", "!", "duplicate"], []),
    ]


def test_a_replaced_placeholder_is_labelled_replaced():
    """The old placeholder and the real result stand on their sides, both marked."""
    first = patch_messages([ai(("a", {}, "c1"), id="m"), HumanMessage("x", id="h")])
    real = ToolMessage("done", tool_call_id="c1", id="r")
    second = patch_messages(first.messages, evidence={(0, 0): Finding(result=real)})
    assert rows_of(second._repr_html_()) == [
        (["#0", "ai"], ["from", "#0", "ai"]),
        ([], ["↺", "recovered", "new", "tool", "for", "c1"]),
        (["−", "replaced", "#1", "tool", "for", "c1"], []),
        (["#2", "human"], ["from", "#2", "human"]),
    ]


def test_two_changes_of_one_message_are_both_shown():
    """Two calls of one message, one promoted and one renamed: both signs, on both sides."""
    message = AIMessage(
        "",
        id="m",
        tool_calls=[{"name": "a b", "args": {}, "id": "c1", "type": "tool_call"}],
        invalid_tool_calls=[
            {"name": "w", "args": "{", "id": "c2", "error": "", "type": "invalid_tool_call"}
        ],
    )
    (both, *_) = rows_of(patch_messages([message])._repr_html_())
    for side in both:
        assert {"✎", "renamed,", "↑", "promoted"} <= {*side} or {
            "✎", "renamed", "↑", "promoted,"} <= {*side}  # fmt: skip


def test_a_report_without_a_patch_shows_the_conversation():
    """A paused thread is shown as it is, with what is wrong beside the pause."""
    history = [ai(("a", {}, "c1"), id="m"), HumanMessage("x" * 10, id="h")]
    dumped = patch_messages(history).to_dict()["before"]
    report = ThreadReport("1", "", "paused", defects=tuple(validate_messages(history)))
    shown = report_html(report.to_dict(), dumped)
    assert "Messages (2)" in shown
    assert shown.index("! dangling") < shown.index("#1 human")
    assert "1 call without a result" in report._repr_html_()
    unreadable = ThreadReport("1", "", "unreadable", reason="a pickle")._repr_html_()
    assert "a pickle" in unreadable
    assert "<td class=" not in unreadable


def test_a_report_shows_its_facts_and_its_patch():
    """A report is a table of its facts and, if there is one, the patch."""
    patch = patch_messages([ai(("t", {}, "c1"))]).to_dict()
    shown = report_html({"thread_id": "<1>", "status": "damaged", "error": None, "patch": patch})
    assert "&lt;1&gt;" in shown
    assert "damaged" in shown
    assert "error" not in re.sub(r"<style>.*?</style>", "", shown, flags=re.DOTALL)
    assert "inserted (unknown)" in shown


# --- long histories, places to jump to ---------------------------------------------------


def long_history():
    """Sixty messages with a damage at the tenth and at the fiftieth."""
    history = [HumanMessage(f"message {number}", id=f"h{number}") for number in range(60)]
    for number in (10, 50):
        history[number] = ai(("t", {}, f"c{number}"), id=f"a{number}")
    return history


def test_stretches_without_a_change_are_folded_and_whole():
    """Three messages around each change are open; the others are behind a line that counts them."""
    shown = patch_messages(long_history())._repr_html_()
    counts = re.findall(r"<summary>(\d+) messages without changes</summary>", shown)
    assert [int(count) for count in counts] == [8, 34, 6]
    assert len(rows_of(shown)) == 62
    assert all(f"message {number}<" in shown for number in range(60) if number not in {10, 50})


def test_each_change_can_be_jumped_to():
    """Above the messages is a link to each change and each defect; each place exists once."""
    patch = patch_messages(long_history())
    report = ThreadReport("1", "", "damaged", defects=tuple(validate_messages(long_history())),
                          patch=patch)  # fmt: skip
    shown = report._repr_html_()
    links = re.findall(r'<li class="(\w+)"><a href="#([^"]*)">([^<]*)</a></li>', shown)
    assert [(kind, text) for kind, _, text in links] == [
        ("wrong", "#10 ! dangling"),
        ("inserted", "c10 + inserted (unknown)"),
        ("wrong", "#50 ! dangling"),
        ("inserted", "c50 + inserted (unknown)"),
    ]
    places = re.findall(r'<td class="\w*" id="([^"]*)">', shown)
    assert [place for _, place, _ in links] == places
    other = ThreadReport("2", "", "damaged", patch=patch)._repr_html_()
    assert not set(re.findall(r'id="([^"]*)"', other)) & set(places)


def test_a_legend_explains_the_signs_of_the_page():
    """Each kind of change on the page has its sign, its word and its meaning; no other has."""
    shown = patch_messages(long_history())._repr_html_()
    legend = re.search(r"<ul class=legend>(.*?)</ul>", shown)[1]
    assert legend == '<li class="inserted">+ inserted: a placeholder was added</li>'


def test_pages_are_dark_where_the_reader_wants_it():
    """Every colour of the light page has another value for dark, and no rule names a colour."""
    light, dark = STYLE.split("@media(prefers-color-scheme:dark)")
    names = set(re.findall(r"(--[a-z-]+):", light))
    dark, rules = dark.split("}}", 1)
    assert set(re.findall(r"(--[a-z-]+):", dark)) == names
    assert "color-scheme:light dark" in light
    assert not re.search(r"#[0-9a-f]{3,6}", rules)
    assert set(re.findall(r"var\((--[a-z-]+)\)", STYLE)) <= names


def contrast(one, two):
    """The contrast of two colours, as the guidelines for accessible pages compute it."""

    def luminance(colour):
        parts = [int(part * 2 if len(colour) == 4 else part, 16) / 255
                 for part in re.findall("." if len(colour) == 4 else "..", colour[1:])]  # fmt: skip
        parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(p * weight for p, weight in zip(parts, (0.2126, 0.7152, 0.0722), strict=True))

    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_every_text_can_be_read():
    """Text has a contrast of at least 4.5 on its background, in the light and in the dark."""
    for part in STYLE.split("@media(prefers-color-scheme:dark)"):
        colours = dict(re.findall(r"(--[a-z-]+):(#[0-9a-f]{3,6})", part))
        for name, colour in colours.items():
            if name.endswith("-bg") or name in {"--bg", "--line"}:
                continue
            for ground in ("--bg", f"{name}-bg"):
                if ground in colours:
                    assert contrast(colour, colours[ground]) >= 4.5, (name, ground)


def test_a_repair_shows_itself():
    """In a notebook a repair is its outcome, its checkpoints and the history on both sides."""
    patch = patch_messages([ai(("t", {}, "c1"))])
    shown = ThreadRepair("1", "", "repaired", None, patch, "before-1", "after-1")._repr_html_()
    for text in ("repaired", "before-1", "after-1", "inserted (unknown)", "adds 1 placeholder"):
        assert text in shown


def test_text_blocks_are_shown_as_text():
    """A text block is its text, a call that is listed is shown once, any other block is JSON."""
    message = AIMessage(
        [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "c1", "name": "t", "input": {}},
            {"type": "tool_use", "id": "c9", "name": "lost", "input": {}},
            "and more",
            {"type": "image", "url": "x"},
        ],
        tool_calls=[{"name": "t", "args": {}, "id": "c1", "type": "tool_call"}],
    )
    dumped = patch_messages([message]).to_dict()["before"]
    shown = report_body({"thread_id": "1", "status": "healthy"}, dumped)
    assert re.findall(r"<pre>(.*?)</pre>", shown) == [
        "Let me see.",
        html.escape('{"type": "tool_use", "id": "c9", "name": "lost", "input": {}}'),
        "and more",
        html.escape('{"type": "image", "url": "x"}'),
        "calls t [c1] {}",
    ]
