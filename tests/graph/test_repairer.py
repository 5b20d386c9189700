"""What `on_patch`, the log and the caller learn of a repair; placeholders of earlier repairs."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import RetryPolicy

from langgraph_patch import is_placeholder, patch_model, validate_messages, with_patching
from langgraph_patch.errors import EvidenceError
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from langgraph_patch.threads import repair_thread
from support.agents import (
    CREATE_AGENT,
    DEEP_AGENT,
    KINDS,
    REACT_V2,
    Bench,
    Graph,
    Kind,
    both_calls,
    human,
    react_v2,
    thread,
)
from support.open_calls import UNKNOWN_STATEMENTS
from support.paused_agents import paused_agent
from support.placeholder_texts import DEEPAGENTS_INCOMPLETE, WAITED
from support.running import in_turn, pairs, run_in_worker, sync_and_async
from support.strict import StrictModel, ai
from support.transcripts import statements

BY_NAME = {kind.name: kind for kind in KINDS}
V2, AGENT = BY_NAME["react_v2"], BY_NAME["create_agent"]

PLACES = ["entry", "model node"]
each_place = pytest.mark.parametrize("place", PLACES)
each_place_in_turn = pytest.mark.parametrize(
    ("place", "asynchronous"), in_turn(PLACES, [False, True])
)
each_way = pytest.mark.parametrize(
    ("place", "asynchronous", "kind"), pairs(PLACES, [False, True], [V2, AGENT])
)


@pytest.fixture
def logged(caplog):
    """The lines that the package logs while graphs run."""
    caplog.set_level(logging.DEBUG, logger="langgraph_patch")

    def lines() -> list[tuple[int, str]]:
        ours = [r for r in caplog.records if r.name.startswith("langgraph_patch")]
        assert {record.name for record in ours} <= {"langgraph_patch"}
        logs = [(record.levelno, record.getMessage()) for record in ours]
        return [line for line in logs if not line[1].startswith("with_patching")]

    return lines


def says(text: str) -> dict[str, Any]:
    """A human says something."""
    return {"messages": [human(text)]}


async def ready(kind: Kind, place: str, *, asynchronous: bool, saver: Any = None) -> Bench:
    """A thread that its next run repairs, at the entry or in the model node."""
    saver = saver or InMemorySaver()
    bench = kind.make(both_calls(), asynchronous=asynchronous, checkpointer=saver)
    await run_in_worker(bench.graph, says("book it"), asynchronous=asynchronous)
    if place == "model node":
        with pytest.raises(ValueError, match="c1"):
            await run_in_worker(bench.graph, says("never mind"), asynchronous=asynchronous)
    bench.model.script[:] = [AIMessage("fine"), AIMessage("yes?")]
    bench.model.seen.clear()
    return bench


def value_for(place: str) -> Any:
    """The input with which the next run is repaired at that place."""
    return says("never mind") if place == "entry" else None


LINE = (
    "repaired thread '1': recovered 'send_email' 'c1'; inserted 'wire_money' 'c2' (awaiting_input)"
)
SENT_AND_WAITED = [("recovered", "c1", None), ("inserted", "c2", "awaiting_input")]


# --- the report --------------------------------------------------------------------------


@each_way
async def test_one_repair_one_call_one_line(place, asynchronous, kind, logged):
    """`on_patch` gets patch and config once, the log one INFO line; healthy runs say nothing."""
    reported: list[Any] = []
    bench = await ready(kind, place, asynchronous=asynchronous)
    graph = with_patching(bench.graph, on_patch=lambda *report: reported.append(report))
    assert logged() == []
    await run_in_worker(graph, value_for(place), asynchronous=asynchronous)
    [(patch, config)] = reported
    assert [(c.kind, c.tool_call_id, c.cause) for c in patch.changes] == SENT_AND_WAITED
    assert config["configurable"]["thread_id"] == "1"
    assert config["metadata"]["langgraph_node"] == (
        "patch_tool_calls" if place == "entry" else kind.model_node
    )
    assert logged() == [(logging.INFO, LINE)]
    await run_in_worker(graph, says("hello?"), asynchronous=asynchronous)
    assert len(reported) == 1
    assert logged() == [(logging.INFO, LINE)]


@each_place_in_turn
async def test_one_line_for_all_attempts(place, asynchronous, logged):
    """With a RetryPolicy a model node repairs in each attempt, and reports what it writes."""
    reported: list[Any] = []
    failures = [ConnectionError("one"), ConnectionError("two")]
    policy = RetryPolicy(initial_interval=0.01, max_attempts=3, jitter=False)

    def model(state):
        if failures:
            raise failures.pop()
        return {"messages": [AIMessage("fine")]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model, retry_policy=policy).add_edge(START, "model")
    bare = builder.compile(checkpointer=InMemorySaver())
    patched = with_patching(
        bare, model_node="model", on_patch=lambda *report: reported.append(report)
    )
    broken = [human("book it"), both_calls(), human("never mind")]
    bare.update_state(thread(), {"messages": broken}, as_node=START)
    await run_in_worker(patched, says("?") if place == "entry" else None, asynchronous=asynchronous)
    assert len(reported) == 1
    assert [level for level, _ in logged()] == [logging.INFO]
    in_state = patched.get_state(thread()).values["messages"]
    assert validate_messages(in_state) == []
    assert sum(map(is_placeholder, in_state)) == 2


async def test_a_repair_of_a_nodes_input_is_not_reported(logged):
    """Nothing is written before the next message: no line on INFO, and no call of `on_patch`."""
    reported: list[Any] = []
    bench = await ready(V2, "model node", asynchronous=False)
    builder = bench.graph.builder.add_node("beside", lambda _: None).add_edge(START, "beside")
    bare = builder.compile(checkpointer=bench.graph.checkpointer)
    bare.update_state(thread(), None, as_node=START)
    graph = with_patching(bare, on_patch=lambda *report: reported.append(report))
    graph.invoke(None, thread())
    assert reported == []
    assert not [level for level, _ in logged() if level >= logging.INFO]
    graph.invoke(says("hello?"), thread())
    assert len(reported) == 1
    assert logged()[-1] == (logging.INFO, LINE)


async def test_a_repair_of_a_models_input_is_reported(logged):
    """`patch_model` repairs what it sends: a line on DEBUG, without a thread outside of a graph."""
    model = patch_model(StrictModel(script=[AIMessage("fine")]))
    model.invoke([ai(("wire_money", {}, "c2")), human("never mind")])
    line = "repaired the input of a model in thread None: inserted 'wire_money' 'c2' (unknown)"
    assert logged() == [(logging.DEBUG, line)]


# --- names and texts from a model --------------------------------------------------------

EVIL = "\x1b]0;owned\x07\x1b[2J\r\nINFO fake line\u202e\x00\x9b31m\u2028"


def is_plain(text: str) -> bool:
    """Nothing in it moves a cursor, starts a line or hides a letter."""
    return text.isprintable()


@sync_and_async
async def test_what_a_model_wrote_cannot_forge_the_log(asynchronous, logged):
    """Terminal escapes and line ends in names, ids and the thread's id are escaped."""
    model = StrictModel(script=[AIMessage("fine")])
    graph = with_patching(react_v2(model, [], checkpointer=InMemorySaver()))
    history = [
        human("book it"),
        ai((f"wire{EVIL}", {}, f"c1{EVIL}"), (f"mail{EVIL}", {}, "c2")),
        ToolMessage("orphan", tool_call_id=f"gone{EVIL}", name=EVIL),
        human("never mind"),
    ]
    config = thread(f"1{EVIL}")
    await run_in_worker(graph, {"messages": history}, asynchronous=asynchronous, config=config)
    [(level, line)] = logged()
    assert level == logging.INFO
    assert is_plain(line)
    assert line.startswith(r"repaired thread '1\x1b]0;owned\x07\x1b[2J\r\nINFO fake")
    # What was renamed is logged under the name that every wire accepts, the orphan as it was.
    assert r"dropped '\x1b]0;owned" in line


# --- what if it fails --------------------------------------------------------------------


def stored(saver: InMemorySaver) -> list[Any]:
    """All that a checkpointer holds of repairs."""
    found = []
    for saved in saver.list(thread()):
        texts = [str(value) for _, _, value in saved.pending_writes or ()]
        texts.append(str(saved.checkpoint["channel_values"].get("messages")))
        found += [text for text in texts if PLACEHOLDER_KEY in text or "RemoveMessage" in text]
    return found


@each_way
async def test_what_on_patch_raises(place, asynchronous, kind, logged):
    """It reaches the caller, nothing of the repair is written or logged; the next run heals.

    A model node has called its model by then: it reports the repair that it writes.
    """
    saver = InMemorySaver()
    bench = await ready(kind, place, asynchronous=asynchronous, saver=saver)
    refusals = [PermissionError("not on my watch")]

    def refuse_once(patch, config):
        if refusals:
            raise refusals.pop()

    graph = with_patching(bench.graph, on_patch=refuse_once)
    with pytest.raises(PermissionError, match="not on my watch"):
        await run_in_worker(graph, value_for(place), asynchronous=asynchronous)
    assert logged() == []
    assert stored(saver) == []
    assert len(bench.model.seen) == (place == "model node")
    await run_in_worker(graph, None, asynchronous=asynchronous)
    assert logged() == [(logging.INFO, LINE)]
    in_state = graph.get_state(thread()).values["messages"]
    assert validate_messages(in_state) == []
    assert in_state[-1].text == ("fine" if place == "entry" else "yes?")


@each_place
async def test_what_a_placeholder_callable_raises(place, logged):
    """It reaches the caller as it is, and nothing of the repair is written."""
    saver = InMemorySaver()
    bench = await ready(AGENT, place, asynchronous=False, saver=saver)

    def broken(call):
        raise LookupError(call.tool_call_id)

    graph = with_patching(bench.graph, placeholder=broken)
    with pytest.raises(LookupError, match="c2"):
        graph.invoke(value_for(place), thread())
    assert logged() == []
    assert stored(saver) == []
    assert bench.model.seen == []


class Failing(InMemorySaver):
    """A checkpointer that cannot list while it is `down`."""

    down = False

    def list(self, *args, **options):
        """Fail, or list."""
        if self.down:
            raise ConnectionError("the database is gone")
        yield from super().list(*args, **options)

    async def alist(self, *args, **options):
        """Fail, or list."""
        for saved in self.list(*args, **options):
            yield saved


@each_way
async def test_a_checkpointer_that_fails(place, asynchronous, kind, logged):
    """With required evidence nothing is guessed or written; the next run repairs."""
    saver = Failing()
    bench = await ready(kind, place, asynchronous=asynchronous, saver=saver)
    graph = with_patching(bench.graph, recover="required")
    saver.down = True
    with pytest.raises(EvidenceError, match=r"'1'.*the database is gone.*recover=False") as raised:
        await run_in_worker(graph, value_for(place), asynchronous=asynchronous)
    assert isinstance(raised.value.__cause__, ConnectionError)
    saver.down = False
    assert logged() == []
    assert stored(saver) == []
    assert bench.model.seen == []
    await run_in_worker(graph, None, asynchronous=asynchronous)
    assert logged() == [(logging.INFO, LINE)]
    in_state = graph.get_state(thread()).values["messages"]
    assert [m.text for m in in_state if m.type == "human"] == ["book it", "never mind"]
    assert in_state[2].text == "sent to bob"
    assert validate_messages(in_state) == []


@each_place_in_turn
async def test_unreadable_evidence_does_not_end_the_run(place, asynchronous, logged):
    """The calls are unknown, and one WARNING names the error."""
    saver = Failing()
    bench = await ready(V2, place, asynchronous=asynchronous, saver=saver)
    graph = with_patching(bench.graph)
    saver.down = True
    await run_in_worker(graph, value_for(place), asynchronous=asynchronous)
    saver.down = False
    warnings = [line for level, line in logged() if level == logging.WARNING]
    assert len(warnings) == 1
    assert "the database is gone" in warnings[0]
    read = bench.model.seen[-1]
    causes = [m.additional_kwargs[PLACEHOLDER_KEY]["cause"] for m in read if is_placeholder(m)]
    assert causes == ["unknown", "unknown"]


each_kind_in_turn = pytest.mark.parametrize(
    ("kind", "asynchronous"), in_turn([REACT_V2, DEEP_AGENT], [False, True])
)


def check(bench: Bench, graph: Graph, *expected: tuple[str, ...]) -> None:
    """The model was shown all but the last line, the state holds all."""
    stored = graph.get_state(thread()).values["messages"]
    assert statements(bench.model.seen[-1]) == list(expected[:-1])
    assert statements(stored) == list(expected)
    assert validate_messages(stored) == []


START_OF_TURN = [("human", "book it"), ("calls", "c1", "c2")]
SENT = ("c1", "sent to bob", "real")
WAITING = ("c2", WAITED.format("wire_money", "c2"), "awaiting_input")
FOREIGN = [
    ("c1", DEEPAGENTS_INCOMPLETE.format("send_email", "c1"), "real"),
    ("c2", DEEPAGENTS_INCOMPLETE.format("wire_money", "c2"), "real"),
]
NEVER_MIND = ("human", "never mind")


# --- placeholders of this package --------------------------------------------------------


@each_kind_in_turn
async def test_a_placeholder_gives_way_to_the_checkpoint(kind, asynchronous):
    """After a repair without recovery `repair_thread` still finds the recorded results."""
    bench = await paused_agent(
        kind, AIMessage("fine"), AIMessage("yes?"), asynchronous=asynchronous
    )
    blind = with_patching(bench.graph, recover=False)
    await run_in_worker(blind, "never mind", asynchronous=asynchronous)
    check(bench, blind, *START_OF_TURN, *UNKNOWN_STATEMENTS, NEVER_MIND, ("ai", "fine"))
    repair_thread(bench.graph, thread(), min_age=0)
    await run_in_worker(bench.graph, "hello?", asynchronous=asynchronous)
    after = [NEVER_MIND, ("ai", "fine"), ("human", "hello?"), ("ai", "yes?")]
    check(bench, bench.graph, *START_OF_TURN, SENT, WAITING, *after)


@each_kind_in_turn
async def test_a_placeholder_gives_way_to_a_late_result(kind, asynchronous):
    """A real result that arrives after the placeholder takes its place, beside its call."""
    bench = await paused_agent(
        kind, AIMessage("fine"), AIMessage("yes?"), asynchronous=asynchronous
    )
    graph = with_patching(bench.graph)
    await run_in_worker(graph, "never mind", asynchronous=asynchronous)
    check(bench, graph, *START_OF_TURN, SENT, WAITING, NEVER_MIND, ("ai", "fine"))
    late = ToolMessage("wired after all", tool_call_id="c2", name="wire_money", id="late")
    await run_in_worker(graph, [late, human("hello?")], asynchronous=asynchronous)
    wired = ("c2", "wired after all", "real")
    after = [NEVER_MIND, ("ai", "fine"), ("human", "hello?"), ("ai", "yes?")]
    check(bench, graph, *START_OF_TURN, SENT, wired, *after)
    assert graph.get_state(thread()).values["messages"][3].id == "late"


async def test_nothing_gives_way_to_a_placeholder():
    """A call that waited is searched once more; the texts stay, and then nothing is written."""
    patches: list[Any] = []
    answers = [AIMessage("fine"), AIMessage("yes?"), AIMessage("no")]
    bench = await paused_agent(CREATE_AGENT, *answers, asynchronous=False)
    graph = with_patching(bench.graph, on_patch=lambda patch, _: patches.append(patch))
    read = []
    for text in ("never mind", "hello?", "and now?"):
        await run_in_worker(graph, text, asynchronous=False)
        read.append(graph.get_state(thread()).values["messages"])
    first, second, third = read
    assert [m.text for m in second[: len(first)]] == [m.text for m in first]
    assert third[: len(second)] == second
    assert len(patches) == 1


# --- placeholders of others --------------------------------------------------------------


@sync_and_async
async def test_a_deep_agent_s_own_repair_is_replaced(asynchronous):
    """The agent replaced the mail's result; with `replace_foreign` the result is recovered."""
    bench = await paused_agent(
        DEEP_AGENT, AIMessage("hm"), AIMessage("fine"), asynchronous=asynchronous
    )
    await run_in_worker(bench.graph, "never mind", asynchronous=asynchronous)
    check(bench, bench.graph, *START_OF_TURN, *FOREIGN, NEVER_MIND, ("ai", "hm"))
    graph = with_patching(bench.graph, replace_foreign=True)
    await run_in_worker(graph, "hello?", asynchronous=asynchronous)
    after = [NEVER_MIND, ("ai", "hm"), ("human", "hello?"), ("ai", "fine")]
    check(bench, graph, *START_OF_TURN, SENT, WAITING, *after)
    assert bench.tools.done == ["mail to bob"]
