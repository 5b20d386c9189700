"""record_tool_calls where one call id comes more than once in one run of a node.

A node may run a ToolNode in a loop, some models number their calls anew in each answer, and a
wrapper may repeat a call. Each start keeps its own result and its own approval, and none is made
twice.
"""

import asyncio
import inspect

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, interrupt

from langgraph_patch._langgraph_tasks import task_info
from langgraph_patch.errors import RecordingError
from langgraph_patch.recording.records import MARK
from langgraph_patch.recording.wrappers import arecord_tool_calls, record_tool_calls
from support.versions import newer

TimeoutPolicy = newer("langgraph.types", "TimeoutPolicy")

THREAD = {"configurable": {"thread_id": "1"}}
GO = {"messages": [HumanMessage("go", id="h1")]}
NOW = RetryPolicy(initial_interval=0.0, jitter=False, max_attempts=3, retry_on=Exception)


class World:
    """What the tools did, and how often `flaky` still fails."""

    def __init__(self, fails=1):
        self.did = []
        self.fails = fails

    def tools(self):
        """Return tools that leave a trace here."""

        @tool
        def mail(to: str) -> str:
            """Send."""
            self.did.append(f"mail {to}")
            return f"sent to {to}"

        @tool
        def wire(amount: int) -> str:
            """Wire money, if a human agrees."""
            answer = interrupt(f"wire {amount}?")
            self.did.append(f"wire {amount}")
            return f"wired {amount}: {answer}"

        @tool
        def flaky(to: str) -> str:
            """Send, if it does not fail."""
            self.fails -= 1
            if self.fails >= 0:
                msg = "no route"
                raise ConnectionError(msg)
            self.did.append(f"flaky {to}")
            return f"at last to {to}"

        @tool
        def job() -> str:
            """Count up."""
            self.did.append("job")
            return "pending" if len(self.did) < 3 else "ready"

        return [mail, wire, flaky, job]

    def node(self, wrapper=record_tool_calls, awrapper=arecord_tool_calls):
        """Make a ToolNode that records and handles no error."""
        return ToolNode(
            self.tools(),
            wrap_tool_call=wrapper,
            awrap_tool_call=awrapper,
            handle_tool_errors=False,
        )


def ask(*calls):
    """Build a model's message with (name, value, id) calls."""
    args = {"mail": "to", "flaky": "to", "wire": "amount"}
    return AIMessage(
        "",
        tool_calls=[{"name": n, "args": {args[n]: v} if v else {}, "id": i} for n, v, i in calls],
    )


@pytest.fixture(params=["sync", "async"])
def mode(request):
    """Threads or an event loop."""
    return request.param


@pytest.fixture
def run(mode):
    """Run a graph by threads or in an event loop; return the contents of all results."""

    def run_it(app, value, config=THREAD):
        done = (
            app.invoke(value, config) if mode == "sync" else asyncio.run(app.ainvoke(value, config))
        )
        return [m.content for m in done["messages"] if isinstance(m, ToolMessage)]

    return run_it


def looping(mode, node, *rounds, saver=None, **options):
    """Build a graph with one node that runs `node` over each message."""
    texts = lambda: (m() if inspect.isfunction(m) else m for m in rounds)

    def work(_state, config):
        results = [node.invoke([message], config) for message in texts()]
        return {"messages": [m for found in results for m in found]}

    async def awork(_state, config):
        results = [await node.ainvoke([message], config) for message in texts()]
        return {"messages": [m for found in results for m in found]}

    builder = StateGraph(MessagesState)
    builder.add_node("work", work if mode == "sync" else awork, **options)
    return builder.add_edge(START, "work").compile(checkpointer=saver)


def records(saver):
    """Return the newest checkpoint's records, in the order of their calls."""
    writes = saver.get_tuple(THREAD).pending_writes
    found = [value["recorded"] for _, channel, value in writes if channel == "__return__"]
    return sorted(found, key=lambda r: (r["run_index"], r["try_index"]))


# -- rounds --


def test_two_rounds_with_one_id_keep_their_own_results_and_approvals(mode, run):
    """The mail's result does not go to the wire, and the approval reaches it."""
    world = World()
    rounds = ask(("mail", "bob", "call_0")), ask(("wire", 7, "call_0"))
    app = looping(mode, world.node(), *rounds, saver=InMemorySaver())
    run(app, GO)
    assert run(app, Command(resume="yes")) == ["sent to bob", "wired 7: yes"]
    assert world.did == ["mail bob", "wire 7"]


def test_the_same_request_in_three_rounds_is_three_starts(mode, run):
    """A node that polls: each round has its own result, also when it is read back."""
    world = World()
    rounds = [ask(("job", None, "call_0")) for _ in range(3)]
    saver = InMemorySaver()
    app = looping(mode, world.node(), *rounds, ask(("wire", 1, "call_0")), saver=saver)
    run(app, GO)
    assert [(r["run_index"], r["try_index"]) for r in records(saver)] == [(1, 1), (2, 1), (3, 1)]
    assert run(app, Command(resume="yes")) == ["pending", "pending", "ready", "wired 1: yes"]
    assert world.did == ["job"] * 3 + ["wire 1"]


def test_an_entrypoint_with_two_rounds(mode):
    """The functional API is a node in which a loop is the usual thing."""
    world, saver = World(), InMemorySaver()
    node = world.node()
    rounds = ask(("mail", "bob", "call_0")), ask(("wire", 7, "call_0"))

    @entrypoint(checkpointer=saver)
    def flow(_):
        return [node.invoke([message])[0].content for message in rounds]

    @entrypoint(checkpointer=saver)
    async def aflow(_):
        return [(await node.ainvoke([message]))[0].content for message in rounds]

    if mode == "sync":
        flow.invoke(1, THREAD)
        done = flow.invoke(Command(resume="yes"), THREAD)
    else:
        asyncio.run(aflow.ainvoke(1, THREAD))
        done = asyncio.run(aflow.ainvoke(Command(resume="yes"), THREAD))
    assert done == ["sent to bob", "wired 7: yes"]
    assert world.did == ["mail bob", "wire 7"]


TIMED = pytest.param("async", True, marks=pytest.mark.needs(langgraph="1.2"))


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize(("mode", "timed"), [("sync", False), ("async", False), TIMED])
@pytest.mark.needs(langgraph="1.1.3")
def test_a_retry_of_two_rounds_swaps_nothing_and_repeats_nothing(mode, run, saved, timed):
    """With and without a checkpointer; a timed node gets other ways to start tasks each time.

    LangGraph refuses a time limit for a sync node.
    """
    world = World(fails=2)
    rounds = (
        ask(("mail", "bob", "call_0")),
        ask(("mail", "eve", "call_0"), ("flaky", "mia", "call_1")),
    )
    options = {"timeout": TimeoutPolicy(run_timeout=30)} if timed else {}
    saver = InMemorySaver() if saved else None
    app = looping(mode, world.node(), *rounds, saver=saver, retry_policy=NOW, **options)
    assert run(app, GO) == ["sent to bob", "sent to eve", "at last to mia"]
    assert sorted(world.did) == ["flaky mia", "mail bob", "mail eve"]


@pytest.mark.parametrize("of_graph", [False, True])
def test_where_nothing_counts_the_attempts_a_retry_policy_is_refused(
    mode, run, monkeypatch, of_graph
):
    """Before langgraph 1.1.3: the tool does not run. Without a RetryPolicy it is recorded."""
    of_config = lambda config, _: task_info(config, None)
    monkeypatch.setattr("langgraph_patch.recording.recorded_call.task_info", of_config)
    world, message = World(), ask(("mail", "bob", "call_0"), ("wire", 7, "call_1"))
    options = {} if of_graph else {"retry_policy": NOW}
    app = looping(mode, world.node(), message, saver=InMemorySaver(), **options)
    app.retry_policy = (NOW,) if of_graph else ()
    with pytest.raises(RecordingError, match=r"not run: .* RetryPolicy needs langgraph 1\.1\.3"):
        run(app, GO)
    assert world.did == []
    app = looping(mode, world.node(), message, saver=InMemorySaver())
    run(app, GO)
    assert run(app, Command(resume="yes")) == ["sent to bob", "wired 7: yes"]
    assert world.did == ["mail bob", "wire 7"]


@pytest.mark.needs(langgraph="1.1.3")
def test_a_pause_after_a_retry_of_two_rounds(mode, run):
    """The retry has changed the order in which LangGraph counts: each is found by what it is."""
    world = World()
    rounds = (
        ask(("mail", "bob", "call_0"), ("flaky", "mia", "call_1")),
        ask(("mail", "bob", "call_0"), ("mail", "eve", "call_1"), ("wire", 7, "call_2")),
    )
    app = looping(mode, world.node(), *rounds, saver=InMemorySaver(), retry_policy=NOW)
    run(app, GO)
    expected = ["sent to bob", "at last to mia", "sent to bob", "sent to eve", "wired 7: yes"]
    assert run(app, Command(resume="yes")) == expected
    assert sorted(world.did) == ["flaky mia", "mail bob", "mail bob", "mail eve", "wire 7"]


def test_a_model_that_asks_for_something_else_the_second_time_gets_it(mode, run):
    """A node with model and tools in it: what was not asked for again is never handed out."""
    world, receivers = World(), iter(["bob", "eve", "bob"])
    texts = lambda: ask(("mail", next(receivers), "call_0"))
    app = looping(mode, world.node(), texts, ask(("wire", 7, "call_0")), saver=InMemorySaver())
    run(app, GO)
    run(app, None)
    assert world.did == ["mail bob", "mail eve"]
    assert run(app, Command(resume="yes")) == ["sent to bob", "wired 7: yes"]
    assert world.did == ["mail bob", "mail eve", "wire 7"], "asked for again: read back"


def test_an_approval_is_not_good_for_another_amount(mode, run):
    """Resumed by its id, an answer reaches the interrupt of that id or none."""
    world, amounts = World(), iter([100, 500])
    texts = lambda: ask(("wire", next(amounts), "call_0"))
    saver = InMemorySaver()
    app = looping(mode, world.node(), texts, saver=saver)
    run(app, GO)
    (asked,) = app.get_state(THREAD).interrupts
    run(app, Command(resume={asked.id: "yes"}))
    assert world.did == []
    assert [i.value for i in app.get_state(THREAD).interrupts] == ["wire 500?"]


@pytest.mark.needs(langgraph="1.1.3")
def test_calls_with_one_id_in_a_message_are_distinguished_on_resume(mode, run):
    """Also after a retry and a pause: by what they ask for, and by their place if that is equal."""
    world = World()
    calls = [("mail", "bob", "x"), ("mail", "eve", "x"), ("mail", "eve", "x"), ("flaky", "m", "x")]
    message = ask(*calls, ("wire", 7, "x"))
    app = looping(mode, world.node(), message, saver=InMemorySaver(), retry_policy=NOW)
    run(app, GO)
    expected = ["sent to bob", "sent to eve", "sent to eve", "at last to m", "wired 7: yes"]
    assert run(app, Command(resume="yes")) == expected
    assert sorted(world.did) == ["flaky m", "mail bob", "mail eve", "mail eve", "wire 7"]


def test_two_runs_over_one_message_are_two_rounds(mode, run):
    """The very same message twice: each call runs in each."""
    world, message = World(), ask(("mail", "bob", "a"), ("mail", "eve", "b"))
    app = looping(mode, world.node(), message, message)
    assert run(app, GO) == ["sent to bob", "sent to eve"] * 2
    assert sorted(world.did) == ["mail bob"] * 2 + ["mail eve"] * 2


# -- wrappers --


def polling():
    """Make the wrappers that record a call again while its result is "pending"."""

    def poll(request, execute):
        for _ in range(5):
            if (found := record_tool_calls(request, execute)).content != "pending":
                break
        return found

    async def apoll(request, execute):
        for _ in range(5):
            if (found := await arecord_tool_calls(request, execute)).content != "pending":
                break
        return found

    return poll, apoll


def retrying():
    """Make the wrappers that record a call once more if it raised."""

    def again(request, execute):
        try:
            return record_tool_calls(request, execute)
        except ConnectionError:
            return record_tool_calls(request, execute)

    async def again_async(request, execute):
        try:
            return await arecord_tool_calls(request, execute)
        except ConnectionError:
            return await arecord_tool_calls(request, execute)

    return again, again_async


def test_a_call_that_a_wrapper_polls_has_each_result_of_its_own_after_a_resume(mode, run):
    """The first trial's record is not the last one's: polling ends as it ended before."""
    world, saver = World(), InMemorySaver()
    message = ask(("job", None, "c1"), ("wire", 7, "c2"))
    node = world.node(*polling())
    app = looping(mode, node, message, saver=saver)
    run(app, GO)
    polled = [(r["run_index"], r["try_index"]) for r in records(saver)]
    assert polled == [(1, 1), (1, 2), (1, 3)][: len(polled)]
    assert run(app, Command(resume="yes")) == ["ready", "wired 7: yes"]
    assert world.did.count("wire 7") == 1
    if mode == "sync":  # in an event loop the pause may cancel the polling, even within a trial
        assert len(polled) == world.did.count("job") == 3


def test_an_approval_reaches_the_trial_that_asked(mode, run):
    """A call that a wrapper repeats once its first result is there, and which then asks."""
    trials = []

    @tool
    def deploy() -> str:
        """Ask at the second trial."""
        trials.append("deploy")
        return "pending" if len(trials) == 1 else interrupt("release?")

    wrapper, awrapper = polling()
    node = ToolNode([deploy], wrap_tool_call=wrapper, awrap_tool_call=awrapper)
    message = AIMessage("", tool_calls=[{"name": "deploy", "args": {}, "id": "c1"}])
    app = looping(mode, node, message, saver=InMemorySaver())
    run(app, GO)
    assert run(app, Command(resume="released")) == ["released"]
    assert trials == ["deploy"] * 3


def test_what_a_wrappers_second_trial_did_is_not_done_by_the_first_of_a_resume(mode, run):
    """The first attempt raised and left no record: the call has the second one's result."""
    world = World()
    message = ask(("flaky", "bob", "c1"), ("wire", 7, "c2"))
    app = looping(mode, world.node(*retrying()), message, saver=InMemorySaver())
    run(app, GO)
    assert run(app, Command(resume="yes")) == ["at last to bob", "wired 7: yes"]
    assert world.did == ["flaky bob", "wire 7"]


@pytest.mark.needs(langgraph="1.1.3")
def test_what_a_wrappers_second_trial_did_is_not_done_by_the_first_of_a_retry(mode, run):
    """The same where the node goes on, fails and is tried again."""
    world, faults = World(), [OSError("model is down")]

    def model():
        for fault in faults:
            faults.clear()
            raise fault
        return ask(("mail", "eve", "c1"))

    node = world.node(*retrying())
    app = looping(mode, node, ask(("flaky", "bob", "c1")), model, retry_policy=NOW)
    assert run(app, GO) == ["at last to bob", "sent to eve"]
    assert world.did == ["flaky bob", "mail eve"]


@pytest.mark.needs(langgraph="1.1.3")
def test_a_wrapper_may_give_a_call_other_arguments_each_time(mode, run):
    """A wrapper that adds a key or a time makes no other call: the model's own arguments count."""
    world, numbers = World(), iter(range(100))

    def stamped(request):
        if request.tool_call["name"] != "mail":
            return request
        call = {**request.tool_call, "args": {"to": f"bob {next(numbers)}"}}
        return request.override(tool_call=call)

    def stamp(request, execute):
        return record_tool_calls(stamped(request), execute)

    async def astamp(request, execute):
        return await arecord_tool_calls(stamped(request), execute)

    message = ask(("mail", "bob", "c1"), ("flaky", "mia", "c2"), ("wire", 7, "c3"))
    saver = InMemorySaver()
    app = looping(mode, world.node(stamp, astamp), message, saver=saver, retry_policy=NOW)
    run(app, GO)
    assert run(app, Command(resume="yes")) == ["sent to bob 0", "at last to mia", "wired 7: yes"]
    assert world.did == ["mail bob 0", "flaky mia", "wire 7"]


# -- what is in the database --


@pytest.mark.needs(langgraph="1.1.3")
def test_a_mark_tells_the_attempt(mode, run):
    """First an error, then a question: who reads the marks can tell which came last."""
    saver = InMemorySaver()
    trials = []

    @tool
    def wire_once(amount: int) -> str:
        """Fail at first, then ask."""
        trials.append(amount)
        if len(trials) == 1:
            msg = "no route"
            raise ConnectionError(msg)
        return interrupt("ok?")

    node = ToolNode(
        [wire_once],
        wrap_tool_call=record_tool_calls,
        awrap_tool_call=arecord_tool_calls,
        handle_tool_errors=False,
    )
    call = {"name": "wire_once", "args": {"amount": 1}, "id": "c1"}
    message = AIMessage("", tool_calls=[call])
    run(looping(mode, node, message, saver=saver, retry_policy=NOW), GO)
    writes = saver.get_tuple(THREAD).pending_writes
    marks = {w[2]["recorded"]["task_id"]: w[2]["recorded"] for w in writes if w[1] == MARK}
    reported = {
        (marks[task]["node_attempt"], channel) for task, channel, _ in writes if task in marks
    }
    assert reported == {(1, "__error__"), (2, "__interrupt__")}
