"""What a run holds is freed when it ends, without the garbage collector, as by a bare graph.

A run holds the history, and everything in its config. LangGraph takes care to leave no cycle. A run
whose request was refused may wait for the collector: its error refers to it.
"""

import gc
from itertools import product
from weakref import WeakSet

import pytest
from langgraph.pregel._loop import AsyncPregelLoop, SyncPregelLoop

from kit import KINDS, NESTED, TOLD, Agent, above, calls, streamed
from langgraph_patch import with_patching

MAIL, WIRE = ("mail", {"to": "bob"}), ("wire", {"amount": 3})


@pytest.fixture
def runs(monkeypatch):
    """The runs of graphs that are in memory, while nothing is freed but what nothing refers to."""
    found = WeakSet()

    def noted(made):
        def start(self, *args, **options):
            found.add(self)
            made(self, *args, **options)

        return start

    for kind in (SyncPregelLoop, AsyncPregelLoop):
        monkeypatch.setattr(kind, "__init__", noted(kind.__init__))
    gc.disable()
    yield found
    gc.enable()


def test_a_run_is_in_memory_while_it_runs(runs):
    """So the tests below would notice one."""
    seen = []
    with_patching(above(lambda _: seen.append(len(runs)))).compile().invoke({"messages": []})
    assert (seen, len(runs)) == ([1], 0)


WRAPPERS = [
    *(("hand_built", False), ("create_agent", True), ("recorded", True), ("middleware", False)),
    *(("middleware", True), ("node", False), ("called", True)),
]
"""Each wrapper once, and whether it runs asynchronously: all with `--long`."""


def pytest_generate_tests(metafunc):
    """Play one of each wrapper, or each kind of agent in both ways with `--long`."""
    if "asynchronous" in metafunc.fixturenames:
        every = [*product([*KINDS, *NESTED, *TOLD], [False, True])]
        cases = every if metafunc.config.getoption("--long") else WRAPPERS
        metafunc.parametrize(("kind", "asynchronous"), cases)


def test_a_healthy_run_is_freed(kind, asynchronous, runs):
    """Invoked and streamed."""
    script = [calls(MAIL), "done"] * 2
    agent = Agent(kind, *script, asynchronous=asynchronous)
    agent.say("go")
    assert len(runs) == 0
    agent.stream({"messages": "go"}, "messages")
    assert len(runs) == 0


@pytest.mark.parametrize("kind", ["hand_built", "middleware", "recorded"])
def test_a_run_that_repairs_or_asks_again_is_freed(kind, runs):
    """An abandoned pause, an answered one, and a call that was cut."""
    Agent(kind, streamed(("mail", '{"to": "b')), "done").say("go")
    assert len(runs) == 0
    paused = [Agent(kind, calls(WIRE), "done", "more") for _ in range(2)]
    for agent in paused:
        agent.say("go")
    gc.collect()
    paused[0].say("on")
    paused[1].resume()
    assert len(runs) == 0
