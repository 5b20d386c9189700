"""A report, a difference and the columns of a terminal, from `to_dict()` values."""

import re

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langgraph_patch import patch_messages, validate_messages
from langgraph_patch.render.columns import plain, width_of, wrapped
from langgraph_patch.render.terminal import (
    diff,
    repair_outcome,
    repair_row,
    scan_row,
    scan_widths,
    show_report,
)
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport
from support.strict import ai


def printed(history, *, with_patch=True, width=200):
    """What the terminal shows of a history, below the facts."""
    patch = patch_messages(history)
    report = ThreadReport(
        "1",
        "",
        "damaged" if with_patch else "paused",
        defects=tuple(validate_messages(history)),
        patch=patch if with_patch else None,
    )
    lines = [
        plain(line) for line in show_report(report.to_dict(), patch.to_dict()["before"], width)
    ]
    return lines[lines.index("") + 2 :]


HISTORY = [
    ai(("a", {}, "c1"), ("b", {}, "c2"), id="m"),
    HumanMessage("steer", id="h"),
    ToolMessage("late", tool_call_id="c1", id="r"),
]


def test_a_moved_message_is_shown_at_both_places():
    """The message that stays is beside itself; the moved one has a gap beside it, twice."""
    rows = [re.split(r" {2,}", line) for line in printed(HISTORY) if "[" in line]
    assert [row for row in rows if "calls" not in "".join(row)] == [
        ["0", "! [ai] dangling", "[ai]"],
        ["", "→ [tool c1] moved"],
        ["", "+ [tool c2] inserted (unknown)"],
        ["1", "[human]", "[human]"],
        ["2", "! [tool c1] misplaced"],
    ]


def test_a_report_without_a_patch_has_one_column():
    """The history is shown with its defects and its calls."""
    assert printed(HISTORY, with_patch=False)[:3] == [
        "0   ! [ai] dangling",
        "      calls a [c1] {}",
        "      calls b [c2] {}",
    ]


def test_control_characters_are_escaped_and_long_text_is_cut():
    """No escape sequence reaches the terminal; the length of a cut text is printed."""
    history = [HumanMessage("\x1b[2J\u202e" + "x" * 1000)]
    text = "".join("".join(printed(history, width=2000)).split("\n"))
    assert r"\x1b[2J\u202e" in text
    assert "\x1b" not in text
    assert "(1,005 characters)" in text


@pytest.mark.parametrize("width", [40, 80, 140, 200])
def test_no_line_is_wider_than_the_terminal(width):
    """Whatever the script is: East Asian characters take two columns, accents none."""
    text = "好" * 60 + " e\u0301" * 50 + " 👍" * 50 + " " + "x" * 300
    history = [HumanMessage(text, id="h"), ai(("t", {"x": text}, "c"), id="a"), AIMessage("x")]
    assert max(width_of(line) for line in printed(history, width=width)) <= width
    report = ThreadReport(text, text, "damaged", reason=text, patch=patch_messages(history))
    for line in scan_row(report.to_dict(), "", scan_widths(max(width, 60))):
        assert width_of(plain(line)) <= max(width, 60)


def test_wrapped_text_is_whole():
    """Words are kept together where they fit, and nothing is lost or added."""
    text = "one two  three " + "x" * 25 + " four\n\n    five " + "y" * 12
    for width in range(4, 40):
        lines = wrapped(text, width)
        assert max(map(width_of, lines)) <= width
        assert "".join("".join(lines).split()) == "".join(text.split())
    assert wrapped("    calls a long name", 14) == ["    calls a", "    long name"]


def test_a_difference_has_signs_and_folds():
    """A removed message has `-`, a new one `+`, a changed one both; the rest is folded."""
    history = [HumanMessage(f"old {number}", id=f"o{number}") for number in range(20)]
    broken = ai(("a b", {}, "c1"), id="m")
    patch = patch_messages([*history, broken, ToolMessage("lost", tool_call_id="zz", id="r")])
    lines = [plain(line) for line in diff(patch.to_dict())]
    assert lines[0] == "    ... 17 messages without changes ..."
    signs = [(line[2], line.split("]")[0].split("[")[1]) for line in lines[1:] if "] " in line + " "
             and not line.strip("+- ").startswith("calls")]  # fmt: skip
    assert signs == [
        *[(" ", "human")] * 3,
        ("-", "ai"),
        ("+", "ai"),
        ("+", "tool c1"),
        ("-", "tool zz"),
    ]


@pytest.mark.parametrize("width", [None, 80])
def test_a_repair_ends_with_its_outcome(width):
    """The outcome ends the line that was printed before; why it was not written stands below."""
    patch = patch_messages(HISTORY)
    planned = ThreadRepair("1", "", "planned", patch=patch, before="b", after="a")
    lines = repair_row(planned.to_dict(), width)
    assert "recovers" not in plain(lines[0])
    moved = ThreadRepair("1", "", "moved", "another process wrote", patch).to_dict()
    first, below = (plain(line) for line in repair_outcome(moved, lines[-1], width))
    assert (first.split(), below.strip()) == (["moved"], "another process wrote")
    refused = ThreadRepair("1", "", "refused", "it is too young").to_dict()
    assert "it is too young" in " ".join(" ".join(map(plain, repair_row(refused, width))).split())
    assert len(repair_outcome(refused, repair_row(refused, width)[-1], width)) == 1
