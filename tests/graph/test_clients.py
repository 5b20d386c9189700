"""What clients see of the turn of a repair, and of the two turns after it.

A patched graph shows what the bare one shows, and what was repaired once. The model of the bare
graph accepts every history, so that its thread goes on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import chain, product
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph_swarm import create_swarm

from kit import BARE, Agent, StrictModel, calls, patched, streamed
from langgraph_patch.testing import check_request

pytestmark = [
    pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning"),
    pytest.mark.needs("v3", langgraph="1.2"),
]


def swarm(model: Any, tools: Any, saver: Any) -> Any:
    """An agent that is a node."""
    alice = create_agent(model, tools, name="alice")
    bob = create_agent(StrictModel(), [], name="bob")
    return create_swarm([alice, bob], default_active_agent="alice").compile(checkpointer=saver)


GRAPHS = {"create_agent": BARE["create_agent"], "hand_built": BARE["hand_built"], "swarm": swarm}

ANSWERS = ("first", "second", "third")
PAUSED = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}), id="a1")
CUT = streamed(("mail", '{"to": "bo'), reason="length")
DAMAGE = {
    "a pause is abandoned": [PAUSED],
    "a message says nothing": [AIMessage("", id="a1")],
    "a message is cut": [AIMessage("hello", id="a1"), CUT],
}
"""What the model says in the turn before, and in the place of its first answer."""


def play(graph: str, damage: str, *, bare: bool, asynchronous: bool) -> Agent:
    """A damaged thread, whose model has an answer for each of three turns."""
    agent = Agent(GRAPHS[graph], DAMAGE[damage][0], asynchronous=asynchronous)
    agent.say("go")
    agent.model.refuses = (lambda _: None) if bare else check_request
    unusable = [] if bare else DAMAGE[damage][1:]
    agent.model.script = [*unusable, *(AIMessage(text, id=text) for text in ANSWERS)]
    return agent if bare else patched(agent)


def seen_in(agent: Agent, mode: str, text: str) -> list[Any]:
    """What a stream shows of a turn."""
    value = {"messages": [HumanMessage(text, id=text)]}

    async def collect() -> list[Any]:
        if mode == "v3":
            stream = await agent.graph.astream_events(value, agent.config, version="v3")
        else:
            stream = agent.graph.astream_events(value, agent.config, version="v2")
        return [event async for event in stream]

    if mode == "v2" or (mode == "v3" and agent.asynchronous):
        return asyncio.run(collect())
    if mode == "v3":
        return list(agent.graph.stream_events(value, agent.config, version="v3"))
    return agent.stream(value, mode, subgraphs=True)


# --- messages -------------------------------------------------------------------------------


def messages_of(mode: str, chunk: Any) -> list[tuple[str, BaseMessage]]:
    """The messages of a chunk, each with the graph or node that shows it."""
    namespace, data = chunk
    graph = ".".join(each.partition(":")[0] for each in namespace)
    if mode == "messages":
        return [(f"{graph}/{data[1]['langgraph_node']}", data[0])]
    if mode == "values":
        return [(graph, message) for message in data["messages"]]
    return [
        (f"{graph}/{node}", message)
        for node, update in data.items()
        for message in update["messages"]
    ]


def first_seen(mode: str, chunks: list[Any], known: set[Any]) -> list[tuple[str, str, str]]:
    """Each message that a graph or node has not shown before: where, its type, its text.

    The chunks of a message are one. `known` has what was shown, and is added to.
    """
    found: dict[Any, list[str]] = {}
    for chunk in chunks:
        for place, message in messages_of(mode, chunk):
            is_piece = mode == "messages" and message.type == "AIMessageChunk"
            key = (place, message.type, message.id, "" if is_piece else message.text)
            if key not in known or key in found:
                known.add(key)
                found.setdefault(key, []).append(message.text)
    joined = {key: "".join(dict.fromkeys(texts)) for key, texts in found.items()}
    shown = [(key[0], key[1].removesuffix("MessageChunk").lower(), joined[key]) for key in joined]
    return [each for each in shown if each[2] or mode != "messages"]


def texts(agent: Agent) -> Counter[tuple[str, str]]:
    """The stored history, without its order."""
    return Counter((m.type, m.text) for m in agent.history)


def three_turns(
    graph: str, damage: str, mode: str, *, bare: bool, asynchronous: bool
) -> tuple[Agent, list[list[Any]]]:
    """What a stream shows of each of three turns."""
    agent = play(graph, damage, bare=bare, asynchronous=asynchronous)
    return agent, [seen_in(agent, mode, text) for text in ("one", "two", "three")]


MODES = [(mode, way) for way in (False, True) for mode in ("updates", "messages", "values")]
EVENTS = [("v2", True), ("v3", False), ("v3", True)]


def pytest_generate_tests(metafunc):
    """Play each two of graph, damage and mode together, sync and async in turn; all with `--long`.

    The third of them is chosen so that each row and each column of the other two has it once.
    """
    if "mode" not in metafunc.fixturenames:
        return
    modes = EVENTS if metafunc.function is test_events else MODES
    rows = [(*pair, *mode) for pair in product(GRAPHS, DAMAGE) for mode in modes]
    if not metafunc.config.getoption("--long"):
        pairs = [*product(enumerate(GRAPHS), enumerate(DAMAGE))]
        rows = [
            (g, d, *[*modes[(i + j) % 3 :: 3]][i % (len(modes) // 3)]) for (i, g), (j, d) in pairs
        ]
    metafunc.parametrize(("graph", "damage", "mode", "asynchronous"), rows, ids=str)


def test_clients_see_what_was_repaired_once(graph, damage, mode, *, asynchronous: bool):
    """In the turn of the repair; nothing else is shown more, less or in another order."""
    histories, seen = [], []
    for bare in (True, False):
        agent, turns = three_turns(graph, damage, mode, bare=bare, asynchronous=asynchronous)
        known: set[Any] = set()
        seen.append([first_seen(mode, chunks, known) for chunks in turns])
        histories.append(texts(agent))
        if mode == "updates":
            updates = [each for _, data in chain.from_iterable(turns) for each in data.values()]
            assert all(update["messages"] for update in updates)
    of_bare, of_patched = seen
    repaired, before = histories[1] - histories[0], histories[0] - histories[1]
    shown = Counter(each for each in of_patched[0] if each[1:] in repaired)
    assert repaired
    assert set(shown.values()) <= {1}
    changed = set(repaired) | set(before)
    kept = [[e for e in of[0] if e[1:] not in changed] for of in seen]
    assert kept[0] == kept[1]
    assert of_patched[1:] == of_bare[1:]
    must_show = {e for e in repaired if mode == "values" or e[0] == "tool"}
    assert must_show <= {each[1:] for each in shown}


# --- events ---------------------------------------------------------------------------------


def event_of(event: Any) -> tuple[str, ...]:
    """What kind of event it is, and whose: of version 2, or of the protocol of version 3."""
    if "method" not in event:
        node = event["metadata"].get("langgraph_node", "")
        return event["event"], event["name"], node
    data = event["params"]["data"]
    kind, metadata = data if isinstance(data, tuple) else (data, {})
    name = kind.get("event", "") if isinstance(kind, dict) else kind.type
    return event["method"], name, metadata.get("langgraph_node", "")


def is_of_the_repair(event: tuple[str, ...], damage: str) -> bool:
    """Whether the turn of a repair may show it beside what a bare graph shows."""
    _, name, node = event
    if "patch_tool_calls" in event or name == "langgraph_patch":
        return True
    if damage == "a pause is abandoned":
        return event in {("on_chain_stream", "LangGraph", ""), ("values", "", "")}
    return node in {"agent", "model"}  # its second request


def test_events(graph, damage, mode, *, asynchronous: bool):
    """The node that repairs, and the second request; later turns are those of a bare graph."""
    bare, patched = (
        [Counter(map(event_of, turn)) for turn in three_turns(graph, damage, mode, **way)[1]]
        for way in [{"bare": is_bare, "asynchronous": asynchronous} for is_bare in (True, False)]
    )
    assert all(is_of_the_repair(each, damage) for each in patched[0] - bare[0])
    # A node that is run again does not stream, and the router of START runs behind the repair.
    moved = {("on_chain_stream", "agent", "agent")} if damage == "a message says nothing" else set()
    if damage == "a pause is abandoned":
        moved = {e for e in bare[0] if e[1:] == ("route_to_active_agent", "__start__")}
        assert {(*each[:2], "patch_tool_calls") for each in moved} <= set(patched[0])
    assert set(bare[0] - patched[0]) <= moved
    assert patched[1:] == bare[1:]
