"""What clients see of the turn of a repair, and of the two turns after it.

A patched graph shows what the bare one shows, and what was repaired once. The model of the bare
graph accepts every history, so that its thread goes on.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain, product
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from kit import BARE, Agent, calls, patched, refuses, streamed, swarm

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
    agent.model.refuses = (lambda _: None) if bare else refuses
    unusable = [] if bare else DAMAGE[damage][1:]
    agent.model.script = [*unusable, *(AIMessage(text, id=text) for text in ANSWERS)]
    return agent if bare else patched(agent)


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
    inputs = ({"messages": [HumanMessage(text, id=text)]} for text in ("one", "two", "three"))
    return agent, [agent.stream(value, mode, subgraphs=True) for value in inputs]


MODES = [(mode, way) for way in (False, True) for mode in ("updates", "messages", "values")]


def pytest_generate_tests(metafunc):
    """Play each two of graph, damage and mode together, sync and async in turn; all with `--long`.

    The third of them is chosen so that each row and each column of the other two has it once.
    """
    rows = [(*pair, *mode) for pair in product(GRAPHS, DAMAGE) for mode in MODES]
    if not metafunc.config.getoption("--long"):
        pairs = [*product(enumerate(GRAPHS), enumerate(DAMAGE))]
        rows = [(g, d, *[*MODES[(i + j) % 3 :: 3]][i % 2]) for (i, g), (j, d) in pairs]
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
