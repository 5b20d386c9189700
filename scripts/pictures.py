"""Write the pictures of the documentation, from what the program and LangGraph do.

Two are terminals, which rich exports; three are drawn from what a run did and recorded, and one
from the layers that import-linter checks. A test compares them with a fresh run:
`python scripts/pictures.py` writes them anew.
"""

from __future__ import annotations

import re
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command
from rich.console import Console
from rich.text import Text

from kit import BARE, Desk, StrictModel, calls
from langgraph_patch import with_patching
from langgraph_patch.cli.demo import lines, style_of
from langgraph_patch.threads import scan_threads
from langgraph_patch.view import report_view
from support.bank import Talk, twice

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pages" / "pictures"

BOTH = calls(("mail", {"to": "bob"}), ("wire", {"amount": 100}), id="a1")
CONFIG: Any = {"configurable": {"thread_id": "7"}}
WIDTH = 76

TERMINAL = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="-14 -10 {terminal_width}+28 {terminal_height}+20" \
role="img" font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace">
<style>
.{unique_id}-matrix {{ font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>{lines}</defs>
<rect x="-14" y="-10" width="100%" height="100%" rx="8" fill="#1c1f26"/>
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</svg>
"""
"""What rich puts a terminal into: no frame, no font of another host."""

DRAWING = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" viewBox="0 0 {width} {height}" role="img" \
font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="16">
<style>
text {{ fill: #1f2328 }} .soft {{ fill: #59636e }} .card {{ fill: #ffffff; stroke: #d1d9e0 }}
.kept rect {{ fill: #dafbe1; stroke: #1a7f37 }} .lost rect {{ fill: #ffebe9; stroke: #cf222e }}
.plain rect {{ fill: #f6f8fa; stroke: #59636e }} .lost rect {{ stroke-dasharray: 5 4 }}
.added rect {{ fill: #fff8c5; stroke: #9a6700 }} .core rect {{ fill: #ddf4ff; stroke: #0969da }}
path {{ fill: none; stroke: #59636e; stroke-width: 1.5 }}
@media (prefers-color-scheme: dark) {{
text {{ fill: #f0f6fc }} .soft {{ fill: #9198a1 }} .card {{ fill: #0d1117; stroke: #3d444d }}
.kept rect {{ fill: #12261e; stroke: #3fb950 }} .lost rect {{ fill: #25171c; stroke: #f85149 }}
.plain rect {{ fill: #151b23; stroke: #9198a1 }} .added rect {{ fill: #272115; stroke: #d29922 }}
.core rect {{ fill: #121d2f; stroke: #4493f8 }} path {{ stroke: #9198a1 }}
}}
</style>
<rect class="card" x="1" y="1" width="{inner_width}" height="{inner_height}" rx="8"/>
{body}
</svg>
"""


# --- terminals ---------------------------------------------------------------------------------


def terminal(shown: Iterable[Any], title: str) -> str:
    """What a terminal shows, as a picture."""
    console = Console(record=True, file=StringIO(), width=WIDTH, highlight=False, markup=False)
    for each in shown:
        console.print(each)
    picture = console.export_svg(title=title, code_format=TERMINAL)
    margin = re.compile(r"([\d.]+)\+(\d+)")
    picture = margin.sub(lambda found: f"{float(found[1]) + int(found[2]):.0f}", picture, count=2)
    return re.sub(r" +$", "", picture, flags=re.MULTILINE)


def demo() -> str:
    """The first conversation of the demo, bare and patched."""
    first = "\n".join(lines()).partition("\n1a. ")[2].partition("\n2a. ")[0]
    shown = [Text(line, style_of(line)) for line in f"1a. {first}".splitlines()]
    return terminal(shown, "langgraph-patch demo")


def show() -> str:
    """`show` of a damaged thread."""
    agent = create_agent(StrictModel(script=[BOTH]), Desk().tools(), checkpointer=InMemorySaver())
    converse(agent)
    [report] = scan_threads(agent.checkpointer)
    report = replace(report, age=7200.0, written=None, checkpoint_id=None)
    return terminal([report_view(report.to_dict())], "langgraph-patch show threads.sqlite 7")


def converse(graph: Any) -> None:
    """A human asks for two things, and writes something else over the question of one."""
    for text in ("Write to Bob and wire him 100.", "Never mind."):
        with suppress(ValueError):  # what the strict model raises, as a provider does
            graph.invoke({"messages": [HumanMessage(text)]}, CONFIG)


# --- drawings ----------------------------------------------------------------------------------


def box(x: int, y: int, width: int, kind: str, title: str, *texts: str) -> str:
    """A box with a title and lines of text."""
    height = 42 + 22 * len(texts)
    rect = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" stroke-width="1.5"/>'
    head = f'<text x="{x + 12}" y="{y + 26}" font-weight="600">{escape(title)}</text>'
    below = [label(x + 12, y + 48 + 22 * place, text) for place, text in enumerate(texts)]
    return f'<g class="{kind}">{rect}{head}{"".join(below)}</g>'


def label(x: int, y: int, text: str, *, soft: bool = False) -> str:
    """A line of text."""
    kind = ' class="soft"' if soft else ""
    return f'<text x="{x}" y="{y}"{kind}>{escape(text)}</text>'


def drawing(height: int, body: Sequence[str], *, width: int = 760) -> str:
    """A picture on a card of its own, for light and dark pages."""
    return DRAWING.format(
        width=width,
        height=height,
        inner_width=width - 2,
        inner_height=height - 2,
        body="\n".join(body),
    )


class Told(NamedTuple):
    """What a graph recorded of a message with two calls beside a pause, and what came of it.

    Attributes:
        tasks: What each task recorded.
        read: What the model reads of each call if the user writes something else.
        mails: How often the mail is sent if the human answers.
    """

    tasks: list[str]
    read: list[str]
    mails: int


def paused(*, record: bool) -> Told:
    """Run a hand-built graph up to its pause; go on by another message, and by an answer."""
    desk = Desk()
    builder = StateGraph(MessagesState)
    model = StrictModel(script=[BOTH, AIMessage("Done.")] * 2)
    builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode(desk.tools()))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    graph = with_patching(builder.compile(checkpointer=InMemorySaver()), record=record)
    other: Any = {"configurable": {"thread_id": "other"}}
    converse(graph)
    read = [m.text for m in graph.get_state(CONFIG).values["messages"] if m.type == "tool"]
    desk.did.clear()
    graph.invoke({"messages": [HumanMessage("Write to Bob and wire him 100.")]}, other)
    [saved] = graph.checkpointer.list(other, limit=1)
    tasks: dict[str, str] = {}
    for task, channel, value in saved.pending_writes:
        if channel == "__interrupt__":
            tasks[task] = "records a question to a human"
        elif channel == "messages":
            tasks[task] = f"records the result {value[0].text!r}"
    graph.invoke(Command(resume="yes"), other)
    return Told(sorted(tasks.values(), reverse=True), read, desk.did["mail bob"])


def record() -> str:
    """What each task of a message records, with and without `record=True`."""
    bare, sent = paused(record=False), paused(record=True)
    question = "records a question to a human"
    unknown = all("may or may not have run" in text for text in bare.read)
    if not unknown or bare.mails != 2 or bare.tasks != [question]:
        raise ValueError(bare)
    if sent.read[0] != "sent to bob" or sent.mails != 1 or sent.tasks[1] != question:
        raise ValueError(sent)
    sends = "The mail is sent, and not recorded."
    body = [
        label(24, 38, "The model calls mail and wire in one message; wire asks a human."),
        label(24, 78, "a plain ToolNode"),
        box(24, 92, 340, "lost", "one task: mail, wire", bare.tasks[0], sends),
        label(24, 204, "The user writes something else:", soft=True),
        label(24, 228, "the model reads of both calls that", soft=True),
        label(24, 252, "they may or may not have run.", soft=True),
        label(24, 288, "A human answers: the mail is sent again.", soft=True),
        label(396, 78, "with_patching(graph, record=True)"),
        box(396, 92, 340, "kept", "a task: mail", sent.tasks[0]),
        box(396, 164, 340, "plain", "a task: wire", sent.tasks[1]),
        label(396, 252, "The model reads the result of the mail.", soft=True),
        label(396, 288, "A human answers: only wire runs again.", soft=True),
    ]
    return drawing(312, body)


def dropped_turn(patch: Callable[[Any], Any]) -> list[str]:
    """What a graph stores of a conversation with an agent that is a node, message by message."""
    script = [BOTH, AIMessage("No money was wired.")]
    agent = create_agent(StrictModel(script=script), Desk().tools(), name="banker")
    builder = StateGraph(MessagesState).add_node("banker", agent).add_edge(START, "banker")
    graph = patch(builder.compile(checkpointer=InMemorySaver()))
    converse(graph)
    return [
        ", ".join(call["name"] for call in getattr(m, "tool_calls", ())) or m.text
        for m in graph.get_state(CONFIG).values["messages"]
    ]


def turn() -> str:
    """The turn of an agent that is a node: dropped by LangGraph, and put back."""
    bare, patched = dropped_turn(lambda graph: graph), dropped_turn(with_patching)
    asked, called, mail, wire, never, answer = patched
    if bare != [asked, never, answer] or (called, mail) != ("mail, wire", "sent to bob"):
        raise ValueError(bare, patched)
    if "asked for human input" not in wire:
        raise ValueError(patched)
    left = [
        box(24, 60, 340, "plain", "human", asked),
        box(
            24,
            136,
            340,
            "lost",
            "the turn of the agent: dropped",
            "mail was sent, wire asks a human",
        ),
        box(24, 352, 340, "plain", "human", never),
        label(24, 446, "The model knows nothing of the mail.", soft=True),
    ]
    right = [
        box(396, 60, 340, "plain", "human", asked),
        box(396, 136, 340, "added", "ai", f"calls {called}"),
        box(396, 208, 340, "kept", "tool: the recorded result", mail),
        box(396, 280, 340, "added", "tool: what is known of wire", "asked for human input"),
        box(396, 352, 340, "plain", "human", never),
        label(396, 446, answer, soft=True),
    ]
    heads = [label(24, 40, "LangGraph alone"), label(396, 40, "with_patching(graph)")]
    return drawing(470, [*heads, *left, *right])


def approved(wrap: Callable[[Any], Any]) -> tuple[list[str], list[int]]:
    """What two tabs get that approve one payment at once, and what was paid."""
    talk = Talk(lambda model, tools, saver, **_: wrap(BARE["create_agent"](model, tools, saver)))
    talk.say("Pay 5.")
    raised = twice(talk)
    return [error or talk.read for error in raised], talk.bank.paid


def approval() -> str:
    """Two tabs approve one payment at once, bare and with `once`."""
    graphs: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
        ("LangGraph alone", "lost", lambda agent: agent),
        ('with_patching(agent, once=["pay"])', "plain", once),
    )
    body = [label(24, 38, "The tool pay asks a human. Two tabs say yes at once.")]
    paid = []
    for x, (head, second, wrap) in zip((24, 396), graphs, strict=True):
        (first, other), amounts = approved(wrap)
        paid.append(amounts)
        body += [
            label(x, 78, head),
            box(x, 92, 340, "kept", "one tab: yes", first),
            box(x, 164, 340, second, "the other tab: yes", other),
            label(x, 262, f"The bank paid {' and '.join(map(str, amounts))}."),
        ]
    if paid != [[5, 5], [5]]:
        raise ValueError(paid)
    return drawing(286, body)


def once(agent: Any) -> Any:
    """The agent, in which a call of `pay` runs once."""
    return with_patching(agent, once=["pay"])


PACKAGES = {
    "cli": "the command line: scan, show, repair, undo",
    "streaming": "streams",
    "testing": "for tests",
    "threads": "databases",
    "graph": "what is put where",
    "middleware": "create_agent",
    "model": "patch_model",
    "tools": "a tool is run: alone, and once",
    "asking": "a model is asked, and again if it refuses",
    "repairing": "what is written to the state",
    "evidence": "what the checkpoints recorded",
    "state": "the values of a state of any form",
    "history": "messages in, patch out, without I/O",
    "_langgraph": "private details of LangGraph, guarded",
    "view": "results as tables",
    "_sansio": "I/O, written once",
    "errors": "the exceptions",
    "_text": "text of others, safe to show",
}
"""What each package does."""

WAY = {
    "START": "repairing.entry",
    "fast check": "history.fast_check",
    "reading": "history.reading",
    "window": "evidence.window",
    "judge": "evidence.judge",
    "patch": "history.repair",
    "one write": "repairing.writing",
}
"""The way of a damaged history: each step, and the module that does it."""

KINDS = {"repairing": "added", "evidence": "kept", "history": "core"}
"""The colours of the packages on that way."""


def layers_of(container: str) -> list[list[str]]:
    """The layers of a package, from the top: what stands side by side in each of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each["containers"] == [container]]
    return [layer.split(" | ") for layer in layers]


def architecture() -> str:
    """The packages as import-linter checks them, and the way of a damaged history."""
    body, y = [label(24, 38, "Packages: each imports only from those below it.")], 54
    for layer in layers_of("langgraph_patch"):
        width, below = (522 - 8 * len(layer)) // len(layer), len(layer) > 2
        for place, name in enumerate(layer):
            x, kind, text = 24 + place * (width + 8), KINDS.get(name, "plain"), PACKAGES[name]
            if below:
                body.append(box(x, y, width, kind, name, text))
            else:
                beside = label(x + (92 if layer[1:] else 124), y + 26, text)
                body += [box(x, y, width, kind, name), beside]
        y += 72 if below else 50
    text = "The way of a damaged history, from START to its one write:"
    body += [label(24, y + 30, text), *way(y + 46)]
    return drawing(y + 226, body, width=562)


def way(y: int) -> Iterator[str]:
    """The steps of a damaged history, four in a row, each with the package that does it."""
    for place, (step, module) in enumerate(WAY.items()):
        package, _, name = module.rpartition(".")
        if not any(name in layer for layer in layers_of(f"langgraph_patch.{package}")):
            raise ValueError(module)
        row, column = divmod(place, 4)
        x, top = 24 + 133 * column, y + 92 * row
        yield box(x, top, 115, KINDS[package], step, package)
        if column:
            yield arrow(f"M{x - 17} {top + 32}h15", "l-6 -5m6 5l-6 5")
        elif row:
            yield arrow(f"M{x + 456} {top - 26}v12h-399v10", "l-5 -6m5 6l5 -6")


def arrow(line: str, head: str) -> str:
    """A line with an arrowhead, from a path."""
    return f'<path d="{line}{head}"/>'


PICTURES: dict[str, Callable[[], str]] = {
    "approval": approval,
    "architecture": architecture,
    "demo": demo,
    "show": show,
    "record": record,
    "turn": turn,
}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    FOLDER.mkdir(exist_ok=True)
    for name, picture in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(picture(), "utf-8")
