"""Patches and reports as tables: the rows, the words, the widths, hostile text, HTML."""

import re
from dataclasses import replace

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
CALL = calls(("t", {}), id="a")
CUT = {"name": "w", "args": "{", "id": "c2", "error": "", "type": "invalid_tool_call"}


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


def sides_of(history):
    """The number of each message, and the signs and notes of its two sides."""
    rows = view.rows_of(patch_messages(history).to_dict())
    return [(each.number, *(cell and cell[1:] for cell in each[1:])) for each in rows]


def test_a_message_is_beside_itself():
    """What is new, dropped or moved has a gap beside it; each defect and change is named."""
    history = [
        HumanMessage("hi"),
        calls(("a", {}), ("b", {}), id="m"),
        HumanMessage("steer", id="h"),
        ToolMessage("late", tool_call_id="c1", id="r"),
        ToolMessage("late again", tool_call_id="c1", id="r2"),
    ]
    assert sides_of(history) == [
        (0, ("", ""), ("", "")),
        (1, ("wrong", "dangling"), ("", "")),
        (None, None, ("moved", "moved")),
        (None, None, ("inserted", "inserted (unknown)")),
        (2, ("", ""), ("", "")),
        (3, ("wrong", "misplaced"), None),
        (4, ("wrong", "duplicate"), None),
    ]
    assert sides_of([calls(("a b", {}), invalid_tool_calls=[CUT])]) == [
        (None, None, ("promoted", "promoted")),
        (None, None, ("inserted", "inserted (unknown)")),
        (None, None, ("inserted", "inserted (malformed)")),
        (0, ("wrong", "malformed, dangling"), None),
    ]


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


def test_defects_and_changes_are_counted_in_words():
    """Each kind once, with its number, also if the repair of a defect takes two changes."""
    kinds = [*([("dangling", f"c{n % 1000}") for n in range(1001)]), ("malformed", "c1"), ("x", "")]
    defects = [{"kind": kind, "index": 1, "tool_call_id": call_id} for kind, call_id in kinds]
    words = "1,000 calls without a result, 1 call with incomplete arguments, 1 x"
    assert view.defects_in_words(defects) == words
    kinds = [("dropped", "c1"), ("corrected", ""), ("inserted", "c1"), ("inserted", "c2")]
    changes = [
        {"kind": k, "name": "t" * (k == "inserted"), "tool_call_id": c, "cause": None}
        for k, c in kinds
    ]
    words = "drops result of a call; corrects a message; placeholder for t (2 times)"
    assert view.changes_in_words(changes) == words


def test_ages_are_said_in_words():
    """An age has its largest unit only."""
    ages = {None: "", 0: "0 seconds", 1: "1 second", 59.9: "59 seconds", 119: "1 minute"}
    ages |= {3600: "1 hour", 86400: "1 day", 86400 * 45: "1 month", 86400 * 800: "2 years"}
    assert {seconds: view.age_in_words(seconds) for seconds in ages} == ages


def test_the_line_of_a_thread_says_what_is_wrong():
    """What a pause asks as it is, cut if it is long; an age; a reason."""
    asks = ("Wire 3?", {"question": "Wire 3?"}, {"action_requests": ["x" * 100]})
    cells = view.line_of("scan", ThreadReport("1", "", "paused", asks=asks).to_dict())
    assert cells[:3] == ["1", "paused", ""]
    assert cells[3].startswith('asks Wire 3?; {"question": "Wire 3?"}; {"action_')
    assert cells[3].endswith("xxx… (159 characters)")
    assert len(cells[3]) == len("asks ") + 80 + len("… (159 characters)")
    report = ThreadReport("1", "sub", "damaged", reason="partly read", age=60.0).to_dict()
    assert view.line_of("scan", report) == ["1 in sub", "damaged", "1 minute", "partly read", ""]


def test_a_table_has_the_columns_that_have_a_text():
    """Each command has heads of its own; a column that is empty in each line is not shown."""
    refused, planned = ThreadRepair("1", "", "refused", "no"), ThreadRepair("2", "", "planned")
    assert view.line_of("repair", refused.to_dict()) == ["1", "refused", "no", ""]
    undone = replace(planned, before="c1").to_dict()
    assert view.line_of("undo", undone) == ["2", "planned", "", "checkpoint c1"]
    lines = [view.line_of("repair", each.to_dict()) for each in (refused, planned)]
    shown = printed(view.lines_table("repair", lines, 120)).splitlines()
    expected = ["THREAD OUTCOME WHY NOT", "1 refused no", "2 planned"]
    assert [" ".join(line.split()) for line in shown] == expected


def test_a_repair_that_is_written_shows_what_was_and_what_is():
    """A plan shows what would be."""
    for outcome, heads in (("planned", "IS  .*AS IT WOULD"), ("repaired", "WAS  .*AS IT IS ")):
        repair = ThreadRepair("1", "", outcome, patch=patch_messages([CALL, AIMessage("x")]))
        assert re.search(heads, printed(view.report_view(repair.to_dict())))
        assert printed(repair) == printed(view.report_view(repair.to_dict()))
        assert repr(repair) == f"<ThreadRepair '1': {outcome} - inserted 't' 'c1' (unknown)>"


def test_a_report_without_a_patch_shows_the_conversation():
    """A paused thread has one column, with what is wrong beside the pause."""
    history = [CALL, HumanMessage("hm", id="h")]
    dumped = patch_messages(history).to_dict()["before"]
    report = ThreadReport("1", "", "paused", defects=tuple(validate_messages(history)), age=90.0)
    shown = printed(view.report_view(report.to_dict(), [*dumped, "<Message>"]))
    assert ("MESSAGES" in shown, "AS IT WOULD BE" in shown) == (True, False)
    assert re.search(r"\[\?\]\s+<Message>", shown)  # a state may hold what has no JSON form
    assert shown.index("! [ai] dangling") < shown.index("[human]")


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


def test_text_of_any_script_is_shown_as_it_is():
    """Joiners, which emoji and Arabic need, line breaks and tabs are no hostile characters."""
    text = "好 é \\ 👨\u200d👩\u200c\tx\n"
    assert view.visible(text) == text
    assert view.visible("\u2028\u200b") == "\\u2028\\u200b"
