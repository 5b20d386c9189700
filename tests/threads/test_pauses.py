"""Every way in which a pause can be over or impossible: what a scan and a repair say of it.

The table is that of `docs/pages/causes.md`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command, interrupt

from kit import Agent, above, calls
from langgraph_patch import with_patching
from langgraph_patch._langgraph.address import Address
from langgraph_patch._sansio import run_sync
from langgraph_patch.cli.main import main
from langgraph_patch.cli.output import DAMAGED
from langgraph_patch.errors import StartedError
from langgraph_patch.evidence.claiming import Record
from langgraph_patch.evidence.claims import Claim
from langgraph_patch.evidence.window import Reader
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.threads import repair_thread, scan_threads
from langgraph_patch.threads.read import StoredHistory
from support import placeholder_texts as texts
from support.databases import open_saver
from support.stored_threads import stateful_child
from support.thread_laws import check_same_judgement

# LangGraph numbers the questions of a task since then; before, an answer that is stored with an
# error cannot be told from a question that was asked behind the error.
pytestmark = pytest.mark.needs(langgraph="1.2.20", langchain="1.4")


class Bank:
    """A tool with questions, in front of a bank that is down when it is told so."""

    def __init__(self) -> None:
        self.is_down = False
        self.paid: list[int] = []

    def tools(self) -> list[Any]:
        @tool
        def pay(amount: int) -> str:
            """Pay; a large amount is asked for twice, and a tiny one after the bank."""
            if amount == 1:
                self.reach()
            interrupt(f"pay {amount}?")
            self.reach()
            if amount > 9:
                interrupt("really?")
            self.paid.append(amount)
            return f"paid {amount}"

        @tool
        def book(amount: int) -> str:
            """Book, without a question."""
            self.reach()
            self.paid.append(amount)
            return f"booked {amount}"

        return [pay, book]

    def reach(self) -> None:
        if self.is_down:
            raise ConnectionError("the bank is down")


class Case(Agent):
    """A thread of an agent with these tools."""

    def __init__(self, saver: Any, build: Any, *amounts: int, name: str = "pay") -> None:
        self.bank = Bank()
        own = self.bank.tools()
        script = calls(*((name, {"amount": amount}) for amount in amounts))
        super().__init__(lambda model, _, saver: build(model, own, saver), script, saver=saver)
        self.say("go")

    def answer(self, value: Any, *, fails: bool = False) -> Case:
        """Run the graph with an input; its error is stored."""
        self.bank.is_down = fails
        with suppress(ConnectionError, ValueError):
            self.run(value)
        self.bank.is_down = False
        return self

    def by_id(self, *, fails: bool = False) -> Case:
        """Answer the first question by the id of its interrupt."""
        return self.answer(Command(resume={self.interrupts[0].id: "yes"}), fails=fails)


def agent(model: Any, tools: Any, saver: Any, **options: Any) -> Any:
    """An agent without this package."""
    return create_agent(model, tools, checkpointer=saver, **options)


def gated(mode: str) -> Any:
    """An agent that asks before it books."""

    def build(model: Any, tools: Any, saver: Any) -> Any:
        gate = HumanInTheLoopMiddleware(interrupt_on={"book": True}, interrupt_mode=mode)
        return agent(model, tools, saver, middleware=[gate])

    return build


def hooked(model: Any, tools: Any, saver: Any) -> Any:
    """An agent of LangGraph, whose hook takes one answer only."""

    def hook(state: Any) -> Any:
        message = state["messages"][-1]
        if getattr(message, "tool_calls", None) and interrupt("book?") != "yes":
            raise ValueError("no such answer")
        return {}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        return create_react_agent(model, tools, post_model_hook=hook, checkpointer=saver)


def as_node(model: Any, tools: Any, saver: Any) -> Any:
    """Such an agent as the node of a graph."""
    return above(create_agent(model, tools)).compile(checkpointer=saver)


def refused(saver: Any) -> Case:
    """Two decisions came for one call."""
    case = Case(saver, gated("batched"), 5, name="book")
    return case.answer(Command(resume={"decisions": [{"type": "approve"}] * 2}))


def asked_again(saver: Any) -> Case:
    """The hook that refused them asks once more."""
    case = refused(saver)
    case.graph.update_state(case.config, None, as_node="model")
    return case.answer(None)


def updated(saver: Any, values: Any, node: str | None = None) -> Case:
    """A client wrote, while the tool was waiting."""
    case = Case(saver, agent, 5)
    case.graph.update_state(case.config, values, as_node=node)
    return case


def without_its_node(saver: Any) -> Case:
    """The application was deployed without the node; then the answer came."""
    case = Case(saver, agent, 5)
    builder = StateGraph(MessagesState).add_node("chat", lambda _: {}).add_edge(START, "chat")
    case.graph = builder.compile(checkpointer=saver)
    return case.answer(Command(resume="yes"))


def below(saver: Any) -> Case:
    """An agent with a history of its own asks, and a client ended its node in the graph above."""
    case = Case(saver, stateful_child, 5)
    case.graph.update_state(case.config, None, as_node="delegate")
    return case


def plain(
    saver: Any, build: Any = agent, *amounts: int, name: str = "pay", by: Any = "yes"
) -> Case:
    """An answer without an id, and a bank that is down."""
    case = Case(saver, build, *(amounts or (5,)), name=name)
    return case.answer(Command(resume=by), fails=True)


def react(saver: Any) -> Case:
    """The hook does not know the answer."""
    return plain(saver, hooked, name="book", by="no")


WAYS: dict[str, tuple[Callable[[Any], Case], list[str], str, list[str] | None]] = {
    # what happened: how, what `get_state` shows, the status, the causes
    "The tool asked, was answered, and failed.": (
        plain, ["pay 5?"], "damaged", ["failed"]
    ),
    "The same, and `invoke(None)` failed again.": (
        lambda saver: plain(saver).answer(None, fails=True), ["pay 5?"], "damaged", ["failed"]
    ),
    "The same, answered by id.": (
        lambda saver: Case(saver, agent, 5).by_id(fails=True), ["pay 5?"], "damaged", ["failed"]
    ),
    "An approval of one call (`per_call`) was given, and the tool failed.": (
        lambda saver: plain(saver, gated("per_call"), name="book", by={"type": "approve"}),
        ["approval"], "damaged", ["failed"],
    ),
    "An approval of all calls was given, and the tool failed.": (
        lambda saver: plain(
            saver, gated("batched"), name="book", by={"decisions": [{"type": "approve"}]}
        ),
        [], "damaged", ["failed"],
    ),
    "It failed behind an answer, ran again, and asks its next question.": (
        lambda saver: Case(saver, agent, 50).by_id(fails=True).answer(None),
        ["really?"], "paused", None,
    ),
    "A run without an answer failed before its question.": (
        lambda saver: Case(saver, agent, 1).answer(None, fails=True), ["pay 1?"], "paused", None
    ),
    "One of two questions was answered by id.": (
        lambda saver: Case(saver, agent, 5, 6).by_id(), ["pay 6?"], "paused", None
    ),
    "The same, and its tool failed.": (
        lambda saver: Case(saver, agent, 5, 6).by_id(fails=True),
        ["pay 5?", "pay 6?"], "paused", None,
    ),
    "An agent that is a node asked, was answered, and its tool failed.": (
        lambda saver: plain(saver, as_node), ["pay 5?"], "healthy", None
    ),
    "A hook refused the answer.": (refused, ["approval"], "damaged", ["unknown"]),
    "The hook of `create_react_agent` refused it.": (
        react, ["book?"], "damaged", ["unknown"],
    ),
    "It was asked again by `update_state`.": (asked_again, ["approval"], "paused", None),
    "An answer did not fit the schema of the question (`per_call`).": (
        lambda saver: plain(saver, gated("per_call"), name="book", by={"type": "accept"}),
        ["approval"], "paused", None,
    ),
    "`update_state` wrote a message.": (
        lambda saver: updated(saver, {"messages": [HumanMessage("too late")]}),
        [], "paused", ["awaiting_input"],
    ),
    "`update_state` wrote as the node that asked.": (
        lambda saver: updated(saver, None, "tools"), [], "paused", ["unknown"]
    ),
    "The node is gone from the graph.": (without_its_node, [], "paused", None),
    "The graph is set to pause (`interrupt_before`).": (
        lambda saver: Case(
            saver, lambda *parts: agent(*parts, interrupt_before=["tools"]), 5
        ),
        [], "paused", ["unknown"],
    ),
    "The graph above has moved on.": (below, [], "damaged", ["awaiting_input"]),
}  # fmt: skip


def asked(case: Case) -> list[str]:
    """What `get_state` shows; an approval in one word."""
    return [each.value if isinstance(each.value, str) else "approval" for each in case.interrupts]


@pytest.mark.parametrize(("way", "place"), [*zip(WAYS, cycle(["memory", "sqlite"]))])
def test_a_pause_is_told_as_it_is(way: str, place: str, tmp_path: Path):
    """What waits is kept; of another one no line says that a human has to answer."""
    make, shown, status, causes = WAYS[way]
    with nullcontext(InMemorySaver()) if place == "memory" else open_saver(tmp_path / "x") as saver:
        case = make(saver)
        assert sorted(asked(case)) == shown
        report = list(scan_threads(saver))[-1]
        found = [change.cause for change in report.patch.changes] if report.patch else None
        assert (report.status, found) == (status, causes)
        config = Address(report.thread_id, report.namespace).config
        check_same_judgement(saver, report)
        repaired = repair_thread(saver, config, min_age=0)
        if status == "paused":
            assert (repaired.outcome, sorted(asked(case))) == ("paused", shown)
        if not report.asks:
            assert "answer it" not in f"{report} {repaired}"


def test_what_helps_behind_an_answer():
    """`invoke(None)` goes on with the stored one."""
    [report] = scan_threads(plain(InMemorySaver()).graph.checkpointer)
    assert report.reason == (
        "an answer is stored, and 'tools' failed behind it: invoke(None) runs it again with that "
        "answer, and no other answer takes its place; a message goes on without it"
    )
    assert str(report).endswith(report.reason)
    assert report.to_dict()["reason"] == report.reason


ONCE = (
    "'pay' 'c1' runs once and was started: neither an answer nor invoke(None) runs it again; if no "
    "run is at it, a message goes on"
)


def once(model: Any, tools: Any, saver: Any) -> Any:
    """An agent whose payments run once."""
    return with_patching(agent(model, tools, saver), once=["pay"])


def test_a_call_that_runs_once_and_failed_behind_its_answer():
    """No run starts it again, so no line advises one."""
    case = Case(InMemorySaver(), once, 5).answer(Command(resume="yes"), fails=True)
    [report] = scan_threads(case.graph.checkpointer)
    assert (report.status, report.reason) == ("damaged", ONCE)
    with pytest.raises(StartedError):
        case.answer(None)
    case.say("and now?")
    assert case.bank.paid == []
    assert "failed in its last recorded attempt" in case.results["c1"]


@pytest.mark.parametrize("word", [None, "paused"])
def test_a_call_that_runs_once_and_whose_process_died(word: Any):
    """Its answer is refused, so none is asked for; without a claim it is."""
    case = Case(InMemorySaver(), once, 5)
    message = case.graph.get_state(case.config).values["messages"][-1]
    reader = Reader(case.graph.checkpointer, "messages")
    record = Record(reader, Address.of(case.config), message, "c1", 0)
    claim = Claim("another run", Claim.digest("pay", {"amount": 5}))
    run_sync(record.begin(claim))
    if word:
        run_sync(record.end(replace(claim, word=word)))
    [report] = scan_threads(case.graph.checkpointer)
    assert (report.status, report.reason) == ("paused", None if word else ONCE)


def test_only_the_question_that_waits_is_asked():
    """Beside one that was answered, and whose tool failed."""
    case = Case(InMemorySaver(), agent, 5, 6).by_id(fails=True)
    [report] = scan_threads(case.graph.checkpointer)
    assert report.asks == ("pay 6?",)
    assert report.reason == (
        "an answer to another question is stored, and 'tools' failed behind it: each further run "
        "uses that answer again"
    )


def test_no_line_of_the_command_line_asks_for_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Of a thread whose answer is stored; the line and the view of the thread say that it is."""
    path = str(tmp_path / "threads.sqlite")
    with open_saver(path) as saver:
        plain(saver)
    for command in (["scan", path], ["show", path, "1"], ["repair", path, "--all"]):
        assert main([*command]) == DAMAGED or "--all" in command
        printed = " ".join("".join(capsys.readouterr()).split())
        assert "answer it" not in printed
        assert "for a human" not in printed
        assert "an answer is stored" in printed or "--all" in command


def test_a_thread_that_no_graph_fits_waits():
    """Whose task failed, is not known: the question stays."""
    saver = InMemorySaver()
    case = plain(saver)
    saved = saver.get_tuple(case.config)
    assert saved is not None
    odd: Any = {**saved.checkpoint["channel_values"], "branch:to:a|b": None}
    versions: Any = {**saved.checkpoint["channel_versions"], "branch:to:a|b": "1"}
    changed: Any = {**saved.checkpoint, "channel_values": odd, "channel_versions": versions}
    stored = StoredHistory(saver, saved._replace(checkpoint=changed), "messages")
    assert (stored.answered(), [*stored.interrupts().values()]) == ({}, ["pay 5?"])


MIDDLE = [PatchToolCallsMiddleware()]
GATE = HumanInTheLoopMiddleware(interrupt_on={"wire": True})
APPROVAL = texts.NOT_APPROVED.format("wire", "c1")
ENDED = texts.WAITED.format("wire", "c1")


@pytest.mark.parametrize("way", ["with_patching", "middleware"])
@pytest.mark.parametrize(("gate", "text"), [([], ENDED), ([GATE], APPROVAL)], ids=["tool", "gate"])
def test_what_an_operator_ended_stays_told_as_that(gate: Any, text: str, way: str):
    """No message came in: the next turns of a graph that is patched do not say so."""

    def build(model: Any, tools: Any, saver: Any) -> Any:
        middleware = [*gate, *(MIDDLE if way == "middleware" else ())]
        built = agent(model, tools, saver, middleware=middleware)
        return with_patching(built) if way == "with_patching" else built

    made = Agent(build, calls(("wire", {"amount": 5})))
    made.say("go")
    repair_thread(made.graph.checkpointer, made.config, on_pause="abandon", min_age=0)
    for line in ("never mind", "and now?"):
        made.say(line)
        assert (made.read, made.results) == ({"c1": text}, {"c1": text})
