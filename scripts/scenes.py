"""What `tomorrow.py` plays in a process of its own: prints what came of each scene, as JSON.

    python scripts/scenes.py [scene ...]

A scene returns what is compared with LangGraph as it is: what tools did, the stored history, and
how often the model was asked. It raises an error if money was wired twice.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.func import task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import CachePolicy, Command, RetryPolicy, interrupt

import kit
from langgraph_patch import (
    final_answers,
    idempotency_key,
    patch_model,
    patch_node,
    repair_thread,
    scan_threads,
)
from langgraph_patch.testing import StrictModel, calls

MAIL = calls(("mail", {"to": "bob"}))
TWO = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}))
"""The first call ends, the second one asks a human."""


def outcome(agent: kit.Agent, *more: Any) -> Any:
    """What was done, what is stored, and how often the model was asked."""
    if any(times > 1 for work, times in agent.desk.did.items() if work.startswith("wire")):
        raise AssertionError(f"done twice: {agent.desk.did}")
    return [dict(agent.desk.did), kit.lines(agent.history), len(agent.model.seen), *more]


def agent_of(*script: Any, make: Callable[[Any, Any], Any]) -> kit.Agent:
    """An agent whose graph is made of a model and tools by `make`, and not patched yet."""
    return kit.Agent(lambda m, tools, saver: make(m, tools).compile(checkpointer=saver), *script)


def bare() -> Any:
    """Graphs that are not patched."""
    agents = [kit.Agent(kit.BARE[kind], MAIL) for kind in kit.BARE]
    for agent in agents:
        agent.say("mail bob")
    waits = kit.Agent(kit.BARE["create_agent"], TWO)
    waits.say("pay bob")
    waits.resume()
    return [outcome(each) for each in (*agents, waits)]


def healthy() -> Any:
    """The chunks of healthy runs."""
    found = []
    for kind in ("hand_built", "recorded", "create_agent", "node"):
        agent = kit.Agent(kind, MAIL)
        chunks = agent.stream({"messages": [HumanMessage("mail bob")]}, ["updates", "values"])
        found.append(outcome(agent, [(mode, [*chunk]) for mode, chunk in chunks]))
    return found


def start() -> Any:
    """START repairs a history, and clients see what is new."""
    agent = kit.Agent(kit.BARE["hand_built"])
    agent.graph.update_state(agent.config, {"messages": [HumanMessage("a"), TWO]}, "agent")
    agent = kit.patched(agent)
    chunks = agent.stream({"messages": [HumanMessage("well?")]})
    shown = [(node, type(value["messages"]).__name__) for c in chunks for node, value in c.items()]
    return outcome(agent, shown)


def node() -> Any:
    """A node leaves a damage behind: the wrapper of the next one repairs it."""
    damages = {"messages": [TWO, HumanMessage("well?")]}
    agent = agent_of(make=lambda model, _: kit.above(lambda _: damages, kit.model_node(model)))
    agent = kit.patched(agent)
    chunks = agent.stream({"messages": [HumanMessage("pay bob")]})
    return outcome(agent, [sorted(chunk) for chunk in chunks])


def abandoned(kind: Any) -> Any:
    """One call ends, one waits; a message comes instead of the answer."""
    agent = kit.Agent(kind, TWO)
    agent.say("pay bob")
    agent.say("never mind")
    return outcome(agent)


def all_abandoned(*kinds: str) -> Any:
    """The same for several kinds of agents."""
    return [abandoned(kind) for kind in kinds]


def once(kind: str = "create_agent", *, by_id: bool = False) -> Any:
    """A human approves a call of a tool in `once`."""
    agent = kit.Agent(kind, TWO, once=["wire"])
    agent.say("pay bob")
    [question] = agent.interrupts
    agent.run(Command(resume={question.id: "yes"} if by_id else "yes"))
    agent.say("and?")
    return outcome(agent)


def once_two() -> Any:
    """A human approves two of them."""
    two = calls(("wire", {"amount": 1}), ("wire", {"amount": 2}))
    agent = kit.patched(kit.Agent(kit.BARE["react_v2"], two), once=["wire"])
    agent.say("pay")
    agent.resume()
    return outcome(agent)


def once_failed() -> Any:
    """One fails, and the run is played again."""
    agent = kit.Agent("create_agent", calls(("boom", {"text": "x"})), once=["boom"])
    found = []
    for value in ({"messages": [HumanMessage("go")]}, None):
        try:
            agent.run(value)
        except Exception as error:  # noqa: BLE001 - it is compared
            found.append(f"{type(error).__name__}: {error}"[:100])
    agent.say("well?")
    return outcome(agent, found)


def approval() -> Any:
    """A human approves a call, or writes a message instead, before its tool starts."""
    found = []
    for is_approved in (True, False):
        agent = kit.Agent(
            kit.BARE["create_agent"], MAIL, middleware=[HumanInTheLoopMiddleware({"mail": True})]
        )
        agent = kit.patched(agent)
        agent.say("mail bob")
        if is_approved:
            agent.run(Command(resume={"decisions": [{"type": "approve"}]}))
        else:
            agent.say("no")
        found.append(outcome(agent))
    return found


def gate() -> Any:
    """A node asks a model of its own, and then a human, about a call."""
    answers = list[str]()

    def asks(state: Any) -> Any:
        note = StrictModel().invoke([*state["messages"][:-1], HumanMessage("check it")]).text
        answers.append(interrupt(f"{note}?"))
        return {}

    agent = agent_of(MAIL, make=lambda model, _: kit.above(kit.model_node(model), asks))
    agent = kit.patched(agent)
    agent.say("mail bob")
    agent.resume()
    agent.say("well?")
    return outcome(agent, answers)


def refusal() -> Any:
    """A model refuses a call without a result, and its node runs again."""
    calls_two = lambda _: {"messages": [TWO]}  # noqa: E731 - a node
    agent = agent_of(make=lambda model, _: kit.above(calls_two, kit.model_node(model)))
    agent = kit.patched(agent)
    agent.say("go")
    return outcome(agent)


def options() -> Any:
    """A graph with options of nodes, of runs and of its compilation."""

    def make(model: Any, tools: Any) -> Any:
        builder, nothing = kit.loop(model, tools), lambda _: {}
        builder.add_node("late", nothing, defer=True, cache_policy=CachePolicy())
        builder.add_node("b1", nothing).add_node("b2", nothing).add_node("joined", nothing)
        builder.add_edge("tools", "late").add_edge(START, "b1").add_edge(START, "b2")
        builder.add_edge(["b1", "b2"], "joined")
        return builder

    agent = kit.Agent(
        lambda model, tools, saver: make(model, tools).compile(
            checkpointer=saver, interrupt_before=["joined"]
        ),
        TWO,
    )
    agent = kit.patched(agent, record=True)
    agent.say("pay bob")
    agent.run(None)
    waits = agent.graph.get_state(agent.config).next
    agent.say("never mind")
    agent.run(None)
    return outcome(agent, waits)


def defaults() -> Any:
    """A graph with options for all nodes, that was compiled before."""
    if not hasattr(StateGraph, "set_node_defaults"):  # older versions
        return outcome(kit.Agent("recorded"))

    def make(model: Any, tools: Any) -> Any:
        own = {"retry_policy": RetryPolicy(max_attempts=1), "error_handler": lambda _: {}}
        return kit.loop(model, tools).set_node_defaults(**own)

    agent = kit.patched(agent_of(MAIL, make=make))
    agent.say("mail bob")
    return outcome(agent)


def stream() -> Any:
    """`final_answers` of a stream."""
    agent = kit.Agent("create_agent", MAIL, "sent")
    chunks = agent.graph.stream(
        {"messages": [HumanMessage("mail bob")]}, agent.config, stream_mode="messages"
    )
    return outcome(agent, "".join(chunk.text for chunk, _ in final_answers(chunks)))


def stored() -> Any:
    """A scan finds a dead thread, and a repair lets it live."""
    agent = kit.Agent(kit.BARE["create_agent"], TWO)
    agent.say("pay bob")
    with suppress(Exception):  # the model refuses the history
        agent.say("never mind")
    saver = agent.graph.checkpointer
    found = [str(report) for report in scan_threads(saver)]
    repair_thread(saver, agent.config, min_age=0)
    return outcome(agent, found)


def functions() -> Any:
    """`idempotency_key`, a `@task` and `patch_model` in functions."""
    keys = list[int]()

    @task
    def key(config: RunnableConfig) -> None:
        keys.append(len(idempotency_key(config, "c1")))

    def calls_two(_: Any) -> Any:
        return {"messages": [TWO]}

    def has_a_key(_: Any) -> Any:
        key().result()
        return {}

    def make(model: Any, _: Any) -> Any:
        ask = lambda s: {"messages": [patch_model(model).invoke(s["messages"])]}  # noqa: E731
        return kit.above(calls_two, has_a_key, ask)

    agent = agent_of(make=make)
    agent.say("pay bob")
    return outcome(agent, keys, len(agent.model.seen[-1]))


def by_hand() -> Any:
    """`patch_node` in a graph."""

    def make(model: Any, _: Any) -> Any:
        builder = StateGraph(MessagesState).add_node("patch_tool_calls", patch_node)
        builder.add_node("agent", kit.model_node(model)).add_edge(START, "patch_tool_calls")
        return builder.add_edge("patch_tool_calls", "agent")

    agent = agent_of(TWO, make=make)
    agent.say("pay bob")
    agent.say("well?")
    return outcome(agent)


SCENES: Mapping[str, Callable[[], Any]] = {
    "bare": bare,
    "healthy": healthy,
    "START": start,
    "node": node,
    "react": partial(all_abandoned, "react_v1", "react_v2"),
    "recover": partial(all_abandoned, "create_agent", "hand_built"),
    "record": partial(abandoned, "recorded"),
    "nested": partial(all_abandoned, "node", "delta_as_node", "swarm"),
    "middleware": partial(abandoned, "middleware"),
    "once": once,
    "once by id": partial(once, "recorded", by_id=True),
    "once, nested": partial(once, "node"),
    "once, two": once_two,
    "once, failed": once_failed,
    "approval": approval,
    "gate": gate,
    "refusal": refusal,
    "options": options,
    "defaults": defaults,
    "stream": stream,
    "stored": stored,
    "functions": functions,
    "patch_node": by_hand,
}


class Told(logging.Handler):
    """Keeps the texts of WARNINGs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self.texts.append(record.getMessage())


def play(names: Sequence[str]) -> dict[str, Any]:
    """What each scene returned, and what it raised; and `told`, the WARNINGs of the process."""
    warnings.simplefilter("ignore")
    told = Told()
    logging.getLogger("langgraph_patch").addHandler(told)
    found: dict[str, Any] = {}
    for name in names or SCENES:
        try:
            found[name] = [json.loads(json.dumps(SCENES[name]())), None]
        except Exception as error:  # noqa: BLE001 - what a user would meet
            found[name] = [None, f"{type(error).__name__}: {error}"]
    return {**found, "told": told.texts}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(play(sys.argv[1:])))
