"""Patches and reports as tables: the rows, the words, the widths, hostile text, HTML."""

import html
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from rich.cells import cell_len
from rich.console import Console

from langgraph_patch import patch_messages, validate_messages
from langgraph_patch.history.texts import Finding
from langgraph_patch.threads.reports import ThreadRepair, ThreadReport
from langgraph_patch.view import (
    _HTML_COLOURS,
    REPORT_HEADS,
    age_in_words,
    as_html,
    counted,
    defects_in_words,
    folded,
    lines_of,
    lines_table,
    page,
    patch_view,
    report_line,
    report_view,
    rows_of,
    tab_separated,
)
from support.strict import ai

HOSTILE = [
    "<script>alert(1)</script>",
    "</pre><img src=x onerror=alert(1)>",
    "\"' onmouseover='alert(1) style=\"color: #1c1e21",
    "\x1b[2J\x1b]0;owned\x07",
    "[red]x[/red] [link=http://x]y[/link] :boom:",
    "a\x00b\x85c\u202egnp.exe",
    "\ud800 half a character",
    "\u061c\u2066turned\u2069\u200b\U000e0041",
]
RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u202a-\u202e\u2066-\u2069\ud800-\udfff\U000e0041]"
)


def damaged(history, **facts):
    """The report on a damaged thread with this history."""
    defects = tuple(validate_messages(history))
    patch = patch_messages(history)
    return ThreadReport("1", "", "damaged", defects=defects, patch=patch, **facts)


def printed(view, width=120):
    """What a terminal shows."""
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(view)
    return captured.get()


# --- rows --------------------------------------------------------------------------------


def rows_in(patch):
    """The rows of a comparison: the index, and each side as (kind, label)."""
    rows = rows_of(patch.to_dict())
    return [
        (row.number, row.before and row.before[1:], row.after and row.after[1:]) for row in rows
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
    assert rows_in(patch_messages(history)) == [
        (0, ("", ""), ("", "")),
        (1, ("wrong", "dangling"), ("", "")),
        (None, None, ("moved", "moved")),
        (None, None, ("inserted", "inserted (unknown)")),
        (2, ("", ""), ("", "")),
        (3, ("moved", "misplaced, moved"), None),
        (4, ("dropped", "duplicate, dropped"), None),
    ]


def test_a_replaced_placeholder_is_labelled_replaced():
    """The old placeholder and the real result stand on their sides, both marked."""
    first = patch_messages([ai(("a", {}, "c1"), id="m"), HumanMessage("x", id="h")])
    real = ToolMessage("done", tool_call_id="c1", id="r")
    second = patch_messages(first.messages, evidence={(0, 0): Finding(result=real)})
    assert rows_in(second)[1:3] == [
        (None, None, ("recovered", "recovered")),
        (1, ("dropped", "replaced"), None),
    ]


def test_two_changes_of_one_message_are_both_shown():
    """Two calls of one message, one promoted and one renamed."""
    call = {"name": "w", "args": "{", "id": "c2", "error": "", "type": "invalid_tool_call"}
    tool_calls = [{"name": "a b", "args": {}, "id": "c1", "type": "tool_call"}]
    message = AIMessage("", id="m", tool_calls=tool_calls, invalid_tool_calls=[call])
    _, left, right = rows_in(patch_messages([message]))[0]
    assert sorted(left[1].split(", ")) == ["bad_name", "dangling", "malformed"]
    assert sorted(right[1].split(", ")) == ["promoted", "renamed"]


def test_rows_far_from_a_change_are_folded():
    """Three messages around each change are shown; a number stands for the others."""
    history = [HumanMessage(f"message {number}", id=f"h{number}") for number in range(60)]
    for number in (10, 50):
        history[number] = ai(("t", {}, f"c{number}"), id=f"a{number}")
    patch = patch_messages(history)
    rows = list(rows_of(patch.to_dict()))
    assert [each for each in folded(rows) if isinstance(each, int)] == [7, 33, 6]
    assert "... 33 messages without changes ..." in printed(patch_view(patch.to_dict()))
    whole = printed(patch_view(patch.to_dict(), whole=True))
    assert all(f"message {number} " in whole for number in range(60) if number not in (10, 50))


def test_text_blocks_are_shown_as_text():
    """A text block is its text, a call that is listed is shown once, any other block is JSON."""
    message = {
        "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "c1", "name": "t", "input": {}},
            {"type": "tool_use", "id": "c9", "name": "lost", "input": {}},
            "and more",
        ],
        "tool_calls": [{"name": "t", "args": {}, "id": "c1", "type": "tool_call"}],
    }
    assert list(lines_of(message)) == [
        "Let me see.",
        '{"type": "tool_use", "id": "c9", "name": "lost", "input": {}}',
        "and more",
        "calls t [c1] {}",
    ]
    assert list(lines_of({"content": "", "tool_calls": None})) == []


def test_a_message_without_a_json_form_is_shown_as_text():
    """A state may hold anything: what could not be converted is a content of its own."""
    report = ThreadReport("1", "", "healthy").to_dict()
    shown = printed(report_view(report, ["<Message>", {"type": "ai", "content": 7}]))
    assert re.search(r"\[\?\]\s+<Message>", shown)
    assert re.search(r"\[ai\]\s+7", shown)


# --- words -------------------------------------------------------------------------------


def test_defects_are_counted_in_words():
    """Each kind once, with its number, also if its repair takes two changes."""
    defects = [
        {"kind": kind, "index": 1, "tool_call_id": call_id}
        for kind, call_id in (
            *(("dangling", "c1"), ("dangling", "c2")),
            *(("malformed", "c3"), ("malformed", "c3"), ("other", "")),
        )
    ]
    assert defects_in_words(defects) == (
        "2 calls without a result, 1 call with incomplete arguments, 1 other"
    )
    assert counted(1000, "call*") == "1,000 calls"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 seconds"),
        (1, "1 second"),
        (119, "1 minute"),
        (7200, "2 hours"),
        (86400 * 3, "3 days"),
        (86400 * 45, "1 month"),
        (86400 * 800, "2 years"),
        (None, ""),
        (float("nan"), ""),
    ],
)
def test_ages_are_said_in_words(seconds, words):
    """An age has its largest unit only."""
    assert age_in_words(seconds) == words


def test_what_a_pause_asks_is_shown_as_it_is():
    """A text is a question, any other value is JSON; a long one is cut."""
    asks = ("Wire 3?", {"question": "Wire 3?"}, {"action_requests": ["x" * 100]})
    state, cells = report_line(ThreadReport("1", "", "paused", asks=asks).to_dict())
    assert (state, cells[0]) == ("paused", "1")
    assert cells[2].startswith('waits for a human: Wire 3?; {"question": "Wire 3?"}; {"action_')
    assert cells[2].endswith("xxx… (159 characters)")


# --- a terminal and a pipe ---------------------------------------------------------------


def test_a_replaceable_placeholder_is_what_is_wrong():
    """A history with a result that is recorded late has no defect, and is listed all the same."""
    report = ThreadReport("1", "", "damaged").to_dict()
    assert report_line(report)[1][2] == "a placeholder can be replaced"


def test_a_report_shows_its_facts_and_both_histories():
    """The defect with its sign, what a repair does, the cause, the added message."""
    shown = printed(report_view(damaged([ai(("t", {}, "c1"))], reason="partly read").to_dict()))
    for text in (
        "Thread 1: damaged",
        "1 call without a result",
        "placeholder for t (unknown)",
        "partly read",
        "! [ai] dangling",
        "+ [tool c1] inserted (unknown)",
    ):
        assert text in shown


def test_a_report_without_a_patch_shows_the_conversation():
    """A paused thread has one column, with what is wrong beside the pause."""
    history = [ai(("a", {}, "c1"), id="m"), HumanMessage("hm", id="h")]
    dumped = patch_messages(history).to_dict()["before"]
    report = ThreadReport("1", "", "paused", defects=tuple(validate_messages(history)), age=90.0)
    shown = printed(report_view(report.to_dict(), dumped))
    assert "MESSAGES" in shown
    assert "AS IT WOULD BE" not in shown
    assert shown.index("! [ai] dangling") < shown.index("[human]")
    assert re.search(r"written +1 minute ago", shown)


@pytest.mark.parametrize("width", [40, 60, 80, 140, 200])
def test_no_line_is_wider_than_the_terminal(width):
    """Whatever the script is: East Asian characters take two columns, accents none."""
    text = "好" * 60 + " e\u0301" * 50 + " 👍" * 50 + " " + "x" * 300
    history = [HumanMessage(text, id="h"), ai(("t", {"x": text}, "c"), id="a"), AIMessage("x")]
    report = damaged(history, reason=text).to_dict() | {"thread_id": text}
    for view in (report_view(report), lines_table(REPORT_HEADS, [report_line(report)], width)):
        assert max(map(cell_len, printed(view, width).splitlines())) <= width


@pytest.mark.parametrize("width", [60, 120])
def test_no_word_of_a_scan_is_broken(width):
    """At 60 columns what is wrong and the repair are below the id, which is whole (fault C11)."""
    report = damaged([ai(("send_email", {}, "c1"))], age=90.0).to_dict()
    report["thread_id"] = "5f1d0f3e-7c0c-4c1e-9d3a-0a3c8e1b2d4f"
    words = printed(lines_table(REPORT_HEADS, [report_line(report)], width), width).split()
    assert {"without", "placeholder", "send_email", "minute", report["thread_id"]} <= set(words)


def test_a_pipe_gets_one_line_for_each_thread():
    """As many tabs in every line, whatever an id holds."""
    report = damaged([ai(("t", {}, "c1"))]).to_dict() | {"thread_id": "a\tb\nc\x1b[2J"}
    text = tab_separated(REPORT_HEADS, [report_line(report)] * 2)
    assert [line.count("\t") for line in text.splitlines()] == [3, 3, 3]
    assert text.splitlines()[1].startswith(r"a\tb\nc\x1b[2J")


def test_long_text_is_cut_and_its_length_is_shown():
    """All of it is shown with `whole`."""
    patch = patch_messages([ai(("t", {}, "c1")), HumanMessage("x" * 1000)]).to_dict()
    assert "(1,000 characters)" in " ".join(printed(patch_view(patch), 200).split())
    assert printed(patch_view(patch, whole=True)).count("x") == 2000


# --- hostile text and HTML ---------------------------------------------------------------


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
    return parser.tags, parser.attributes


def views_of(name):
    """A thread whose messages, ids and facts hold a text, in every form."""
    history = [
        HumanMessage(name, id=name),
        ai((name, {"x": name}, name), id="a"),
        ToolMessage(name, tool_call_id=name, id="t"),
    ]
    patch = patch_messages(history)
    facts = {"checkpoint_id": name, "age": 1.5, "messages": 3, "reason": name, "asks": (name,)}
    for status in ("damaged", "healthy", "paused", "unreadable"):
        found = patch if status == "damaged" else None
        report = ThreadReport(name, name, status, patch=found, **facts).to_dict()
        yield report_view(report, patch.to_dict()["before"])
        yield lines_table(REPORT_HEADS, [report_line(report)], 120)
    yield report_view(ThreadRepair(name, name, "repaired", name, patch, name, name).to_dict())


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_is_shown_as_text(hostile):
    """In a content, an id or a name: no tag, attribute, raw control character or markup."""
    plain = [tags_of(page("x", view, "x")) for view in views_of("x")]
    for view, tags in zip(views_of(hostile), plain, strict=True):
        shown = page(hostile, view, hostile)
        assert tags_of(shown) == tags
        assert not RAW.search(shown)
        shown.encode()
        assert not RAW.search(printed(view))
    assert "[red]x[/red]" in "".join(printed(view) for view in views_of(HOSTILE[4]))


def test_a_page_loads_and_runs_nothing():
    """A page has a policy that forbids everything but its own style."""
    shown = page("t", patch_view(patch_messages([ai(("t", {}, "c1"))]).to_dict()), "")
    assert "default-src 'none'" in html.unescape(shown)
    assert tags_of(shown)[0] <= {"html", "head", "meta", "title", "body", "pre", "span", "footer"}


def contrast(one, two):
    """The contrast of two colours, as the guidelines for accessible pages compute it."""

    def luminance(colour):
        parts = [int(part, 16) / 255 for part in re.findall("..", colour[1:])]
        parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(p * weight for p, weight in zip(parts, (0.2126, 0.7152, 0.0722), strict=True))

    high, low = sorted((luminance(one), luminance(two)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def mixed(colour, text):
    """60 % of a colour with the colour of the text, as a browser computes it."""
    parts = zip(bytes.fromhex(colour[1:]), bytes.fromhex(text[1:]), strict=True)
    return "#" + bytes(round(one * 0.6 + two * 0.4) for one, two in parts).hex()


def test_every_text_can_be_read_in_light_and_in_dark_mode():
    """Each colour has a value for both, with a contrast of at least 4.5 on the background."""
    for colour in (f"#{each}" for each in _HTML_COLOURS.split()):
        assert contrast(mixed(colour, "#000000"), "#ffffff") >= 4.5, colour
        assert contrast(mixed(colour, "#ffffff"), "#1e1e1e") >= 4.5, colour
    shown = as_html(patch_view(patch_messages([ai(("t", {}, "c1"))]).to_dict()))
    colours = set(re.findall(r"(?:color|background): ([^;\"]*)", shown))
    pairs = {f"color-mix(in srgb, #{colour} 60%, CanvasText)" for colour in _HTML_COLOURS.split()}
    assert colours <= {*pairs, "CanvasText", "Canvas"}
    text = "use color: #ff0000; text-decoration-color: #ff0000"
    assert text in as_html(patch_view(patch_messages([HumanMessage(text)]).to_dict(), whole=True))


def test_a_notebook_shows_patches_reports_and_repairs():
    """Each is the same table as in a terminal."""
    patch = patch_messages([ai(("t", {}, "c1"))])
    assert "inserted (unknown)" in patch._repr_html_()
    report = ThreadReport("<b>", "", "damaged", patch=patch)._repr_html_()
    assert "&lt;b&gt;" in report
    repair = ThreadRepair("1", "", "repaired", None, patch, "before-1", "after-1")._repr_html_()
    for text in ("repaired", "before-1", "after-1", "inserted (unknown)", "placeholder for t"):
        assert text in repair


def test_without_rich_a_notebook_shows_the_text():
    """It is escaped, and the command line says in one line what to install."""
    code = (
        "import sys; sys.modules['rich'] = None\n"
        "from langgraph_patch import patch_messages\n"
        "from langgraph_patch.cli import main\n"
        "from langchain_core.messages import AIMessage\n"
        "call = {'name': '<b>\\x1b', 'args': {}, 'id': 'c1'}\n"
        "print(patch_messages([AIMessage('', tool_calls=[call])])._repr_html_())\n"
        "sys.exit(main(['demo']))\n"
    )
    for name in ("color", "console", "table", "terminal_theme", "text"):
        code = f"import sys; sys.modules['rich.{name}'] = None\n{code}"
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (
        2,
        "langgraph-patch: the commands need rich: pip install 'langgraph-patch[cli]'\n",
    )
    assert done.stdout.startswith("<pre>")
    assert "<b>" not in done.stdout
    assert "\x1b" not in done.stdout
