"""What a run holds is freed when it ends, without the garbage collector, as by a bare graph.

A run holds the history, and everything in its config. LangGraph takes care to leave no cycle. A run
whose request was refused may wait for the collector: its error refers to it.
"""

import gc
from contextlib import contextmanager
from itertools import product

import pytest

from kit import KINDS, NESTED, TOLD, Agent, above, calls, streamed
from langgraph_patch import with_patching

MAIL, WIRE = ("mail", {"to": "bob"}), ("wire", {"amount": 3})


def loops():
    """How many runs of graphs are in memory."""
    names = ("SyncPregelLoop", "AsyncPregelLoop")
    return sum(type(each).__name__ in names for each in gc.get_objects())


@contextmanager
def collected_by_nobody():
    """Nothing is freed here but what nothing refers to; yields what was there before."""
    gc.collect()
    gc.disable()
    try:
        yield loops()
    finally:
        gc.enable()


def test_a_run_is_in_memory_while_it_runs():
    """So the tests below would notice one."""
    seen = []
    graph = with_patching(above(lambda _: seen.append(loops()))).compile()
    with collected_by_nobody() as before:
        graph.invoke({"messages": []})
        assert seen == [before + 1]
        assert loops() == before


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


def test_a_healthy_run_is_freed(kind, asynchronous):
    """Invoked and streamed."""
    script = [calls(MAIL), "done"] * 3
    agent = Agent(kind, *script, asynchronous=asynchronous)
    agent.say("first")
    for run in (agent.say, lambda text: agent.stream({"messages": text}, "messages")):
        with collected_by_nobody() as before:
            run("go")
            assert loops() == before


@pytest.mark.parametrize("kind", ["hand_built", "middleware", "recorded"])
def test_a_run_that_repairs_or_asks_again_is_freed(kind):
    """An abandoned pause, an answered one, and a call that was cut."""
    cut = Agent(kind, streamed(("mail", '{"to": "b')), "done")
    with collected_by_nobody() as before:
        cut.say("go")
        assert loops() == before
    paused = [Agent(kind, calls(WIRE), "done", "more") for _ in range(2)]
    for agent in paused:
        agent.say("go")
    with collected_by_nobody() as before:
        paused[0].say("on")
        paused[1].resume()
        assert loops() == before
