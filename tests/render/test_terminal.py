"""A report on a terminal: the same rows as in HTML, from `to_dict()` values."""

from langchain_core.messages import HumanMessage, ToolMessage
from rich.console import Console

from langgraph_patch import patch_messages, validate_messages
from langgraph_patch.render.terminal import show_report
from support.strict import ai


def printed(history, *, with_patch=True):
    """What the terminal shows of a history, without the border of the table."""
    patch = patch_messages(history).to_dict()
    defects = [defect.to_dict() for defect in validate_messages(history)]
    console = Console(width=200, highlight=False, markup=False, emoji=False)
    with console.capture() as captured:
        report = {"defects": defects, "patch": patch if with_patch else None}
        show_report("title", report, patch["before"], console)
    lines = captured.get().splitlines()
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]


HISTORY = [
    ai(("a", {}, "c1"), ("b", {}, "c2"), id="m"),
    HumanMessage("steer", id="h"),
    ToolMessage("late", tool_call_id="c1", id="r"),
]


def test_a_moved_message_is_shown_at_both_places():
    """The message that stays is beside itself; the moved one has a gap beside it, twice."""
    rows = [row for row in printed(HISTORY) if "[" in row[1] + row[2] and "calls" not in row[1]]
    assert rows == [
        ["0", "! [ai] dangling", "[ai]"],
        ["", "", "→ [tool c1] moved"],
        ["", "", "+ [tool c2] inserted (unknown)"],
        ["1", "[human]", "[human]"],
        ["2", "! [tool c1] misplaced", ""],
    ]


def test_a_report_without_a_patch_has_one_column():
    """The history is shown with its defects and its calls."""
    rows = printed(HISTORY, with_patch=False)
    assert rows[:3] == [["0", "! [ai] dangling"], ["", "calls a [c1] {}"], ["", "calls b [c2] {}"]]


def test_control_characters_are_escaped_and_long_text_is_cut():
    """No escape sequence reaches the terminal; the length of a cut text is printed."""
    text = "".join("".join(row) for row in printed([HumanMessage("\x1b[2J\u202e" + "x" * 1000)]))
    assert r"\x1b[2J\u202e" in text
    assert "\x1b" not in text
    assert "(1,005 characters)" in text
