"""Patches and reports as tables: the rows, the words, the widths, hostile text, HTML."""

import re

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from rich.cells import cell_len
from rich.console import Console

from kit import calls
from langgraph_patch import patch_messages, validate_messages, view
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport

HOSTILE = [
    "<script>alert(1)</script>",
    "</pre><img src=x onerror=alert(1)>",
    "\"' onmouseover='alert(1) style=\"color: #1c1e21",
    "\x1b[2J\x1b]0;owned\x07",
    "[red]x[/red] [link=http://x]y[/link] :boom:",
    "a\x00b\x85c\u202egnp.exe \ud800 half a character",
    "\u061c\u2066turned\u2069\u200b\U000e0041",
]
RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0041]"
)


def damaged(history, **facts):
    """The report on a damaged thread with this history."""
    defects = tuple(validate_messages(history))
    patch = patch_messages(history)
    return ThreadReport("1", "", "damaged", defects=defects, patch=patch, **facts).to_dict()


def printed(table, width=120):
    """What a terminal shows."""
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_each_block_of_a_message_is_shown_once():
    """A text block is its text, a call that is listed is shown once, any other block is JSON."""
    lost = {"type": "tool_use", "id": "c9", "name": "lost", "input": {}}
    message = {
        "content": [{"type": "text", "text": "Let me see."}, {**lost, "id": "c1"}, lost, "more"],
        "tool_calls": [{"name": "t", "args": {}, "id": "c1"}],
        "invalid_tool_calls": [{"name": "u", "args": '{"x', "id": "c2"}],
    }
    assert list(view.lines_of(message)) == [
        "Let me see.",
        '{"type": "tool_use", "id": "c9", "name": "lost", "input": {}}',
        "more",
        "calls t [c1] {}",
        'calls u [c2] {"x',
    ]
    assert list(view.lines_of({"content": "", "tool_calls": None})) == []
    odd = {"type": "text", "text": 7, "in": "好"}
    assert list(view.lines_of({"content": [odd]})) == ['{"type": "text", "text": 7, "in": "好"}']


def test_rows_far_from_a_change_are_folded_and_long_texts_are_cut():
    """Three messages around each change are shown; the rest is a number."""
    history = [HumanMessage(f"message {number}", id=f"h{number}") for number in range(60)]
    for number in (10, 50):
        history[number] = calls(("t", {}), first=number, id=f"a{number}")
    history[11] = HumanMessage("~" * 1000, id="h11")
    patch = patch_messages(history).to_dict()
    rows = list(view.folded(list(view.rows_of(patch))))
    assert [each for each in rows if isinstance(each, int)] == [7, 33, 6]
    assert len(rows) == 3 + 7 + 1 + 7 + 1  # a change of two rows, and three on each of its sides
    shown = printed(view.patch_view(patch), 200)
    assert "... 33 messages without changes ..." in shown
    assert ("(1,000 characters)" in " ".join(shown.split()), shown.count("~")) == (True, 2 * 400)
    whole = printed(view.patch_view(patch, whole=True))
    assert all(f"message {number} " in whole for number in range(60) if number not in (10, 11, 50))
    assert whole.count("~") == 2000


@pytest.mark.parametrize("width", [40, 99, 100])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(width):
    """Whatever the script is; ids are whole, alone in their line (C11)."""

    def table_of(report):
        return view.lines_table("scan", [view.line_of("scan", report)], width)

    text = "好" * 60 + " e\u0301" * 50 + " 👍" * 50 + " " + "x" * 300
    history = [HumanMessage(text, id="h"), calls(("t", {"x": text}), id="a"), AIMessage("x")]
    report = damaged(history, reason=text) | {"thread_id": text}
    for table in (view.report_view(report), table_of(report)):
        assert max(map(cell_len, printed(table, width).splitlines())) <= width
    name = "5f1d0f3e" + "-7c0c-4c1e-9d3a-0a3c8e1b2d4f" * (width >= 60)
    report = damaged([calls(("send_email", {}))], age=90.0) | {"thread_id": name}
    shown = printed(table_of(report), width)
    assert {"without", "placeholder", "send_email", "minute", name} <= set(shown.split())
    assert ("WHAT IS WRONG" in shown) == (width >= 100)


def views_of(name):
    """A thread whose messages, ids and facts hold a text, in every form."""
    history = [
        HumanMessage(name, id=name),
        AIMessage("", tool_calls=[{"name": name, "args": {"x": name}, "id": name}]),
        ToolMessage(name, tool_call_id=name, id="t"),
    ]
    patch = patch_messages(history)
    facts = {"checkpoint_id": name, "age": 1.5, "messages": 3, "reason": name, "asks": (name,)}
    for status in ("damaged", "paused"):
        found = patch if status == "damaged" else None
        report = ThreadReport(name, name, status, patch=found, **facts).to_dict()
        yield view.report_view(report, patch.to_dict()["before"])
        yield view.lines_table("scan", [view.line_of("scan", report)], 120)
    repair = ThreadRepair(name, name, "repaired", name, patch, name, name).to_dict()
    yield view.report_view(repair)
    for command in ("repair", "undo"):
        yield view.lines_table(command, [view.line_of(command, repair)], 120)


def tags_in(page):
    """The tags of a page with the names of their attributes."""
    return {re.sub('"[^"]*"', "", tag) for tag in re.findall("<[^>]*>", page)}


def test_hostile_text_is_shown_as_text():
    """In a content, an id or a name: no tag, attribute, raw control character or markup."""
    plain = [tags_in(view.notebook_html(table)) for table in views_of("x")]
    for hostile in HOSTILE:
        for table, tags in zip(views_of(hostile), plain, strict=True):
            shown = view.notebook_html(table)
            assert tags_in(shown) == tags
            assert not RAW.search(shown)
            shown.encode()
            assert not RAW.search(printed(table))
            assert not hostile.startswith("[red]") or "[red]x[/red]" in printed(table)
