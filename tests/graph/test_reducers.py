"""A repair is written so that nothing else is lost, whatever the reducer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START

from langgraph_patch import with_patching
from support import agents
from support.agents import (
    REDUCERS,
    both_calls,
    history,
    human,
    lines,
    new_turn,
    reducer_graph,
    thread,
)
from support.paths import ENVIRONMENT
from support.placeholder_texts import UNKNOWN

REMOVES = ("add_messages", "delta", "deepagents")
"""Reducers under which a message can be put between others, beside other writers."""
APPENDS = ("operator_add", "new_only")
"""Reducers that only append: nothing but a step of one's own can put a message between."""
REFORMATS = ("add_messages_openai",)
"""A reducer that takes the ids and marks off all messages, so that none can be removed by it."""

FIRST = [human("hi"), AIMessage("hello", id="a0"), human("book it"), both_calls()]
TURN = ["human: hi", "ai: hello", "human: book it"]
CALLS = ["ai c1 c2: "]
RESULTS = [
    f"tool c1: {UNKNOWN.format('send_email', 'c1')}",
    f"tool c2: {UNKNOWN.format('wire_money', 'c2')}",
]
REPAIRED = [*TURN, *CALLS, *RESULTS, "human: never mind"]


def build(name: str, saver: Any, *beside: str) -> tuple[Any, Any, Any]:
    """The bare graph of a reducer, the patched one, and the model of both."""
    answers = AIMessage("fine", id="a2"), AIMessage("yes?", id="a3")
    bare, model = reducer_graph(REDUCERS[name], *answers, beside=beside, checkpointer=saver)
    return bare, with_patching(bare, model_node="model"), model


def at_the_entry(name: str, saver: Any, *beside: str, config: Any) -> tuple[Any, Any]:
    """A thread with two open calls gets a new message."""
    bare, graph, model = build(name, saver, *beside)
    bare.update_state(config, {"messages": list(FIRST)}, as_node="model")
    new_turn(graph, REDUCERS[name], config, human("never mind"))
    return graph, model


def at_the_model(
    name: str, saver: Any, *beside: str, config: Any, edit: list[BaseMessage]
) -> tuple[Any, Any]:
    """The bare graph is about to run its model, with two open calls; the patched one goes on."""
    bare, graph, model = build(name, saver, *beside)
    bare.update_state(config, {"messages": edit}, as_node=START)
    assert set(bare.get_state(config).next) == {"model", *beside}
    graph.invoke(None, config)
    return graph, model


# --- the entry check ---------------------------------------------------------------------


@pytest.mark.parametrize("name", [*REMOVES, *APPENDS, *REFORMATS])
def test_entry_check_beside_other_nodes(name: str):
    """The repair has a step of its own: no other node's message is lost, nor the answer."""
    graph, model = at_the_entry(name, InMemorySaver(), "a_note", "z_note", config=thread())
    assert lines(history(graph, thread())) == [
        *REPAIRED,
        "human: a_note",
        "ai: fine",
        "human: z_note",
    ]
    assert [lines(seen) for seen in model.seen] == [REPAIRED]


# --- the node wrapper --------------------------------------------------------------------

DAMAGED = [*FIRST, human("never mind")]


@pytest.mark.parametrize("name", [*REMOVES, *APPENDS, *REFORMATS])
def test_model_node_beside_other_nodes(name: str):
    """The model sees a valid history; START repairs the state with the next message.

    Nothing that the other nodes write is lost.
    """
    graph, model = at_the_model(
        name, InMemorySaver(), "a_note", "z_note", config=thread(), edit=DAMAGED
    )
    assert [lines(seen) for seen in model.seen] == [REPAIRED]
    texts = ["human: never mind", "human: a_note", "ai: fine", "human: z_note"]
    assert lines(history(graph, thread())) == [*TURN, *CALLS, *texts]
    new_turn(graph, REDUCERS[name], thread(), human("hello"))
    turn = [*TURN, *CALLS, *RESULTS, *texts, "human: hello"]
    assert lines(model.seen[-1]) == turn
    messages = history(graph, thread())
    assert lines(messages) == [*turn, "human: a_note", "ai: yes?", "human: z_note"]
    assert not any(isinstance(m, RemoveMessage) for m in messages)


@pytest.mark.parametrize("name", REDUCERS)
def test_model_node_that_runs_alone(name: str):
    """It writes the repair with its answer, whatever the reducer, or leaves it to START."""
    graph, model = at_the_model(name, InMemorySaver(), config=thread(), edit=DAMAGED)
    assert [lines(seen) for seen in model.seen] == [REPAIRED]
    assert lines(history(graph, thread())) in (
        [*REPAIRED, "ai: fine"],
        [*TURN, *CALLS, "human: never mind", "ai: fine"],
    )
    new_turn(graph, REDUCERS[name], thread(), human("hello"))
    turn = [*REPAIRED, "ai: fine", "human: hello"]
    assert lines(model.seen[-1]) == turn
    assert lines(history(graph, thread())) == [*turn, "ai: yes?"]


# --- a new process -----------------------------------------------------------------------


def stored(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Each thread as this process saw it, and as a new process read it from SQLite."""
    here: dict[str, Any] = {}
    with SqliteSaver.from_conn_string(path) as saver:
        for name in REDUCERS:
            beside = () if name == "none" else ("a_note", "z_note")
            for place in ("entry", "model_node"):
                key = f"{name}:{place}"
                if place == "entry":
                    graph, _ = at_the_entry(name, saver, *beside, config=thread(key))
                else:
                    graph, _ = at_the_model(
                        name, saver, *beside, config=thread(key), edit=list(DAMAGED)
                    )
                messages = history(graph, thread(key))
                here[key] = {"lines": lines(messages), "ids": [m.id for m in messages]}
    command = [sys.executable, str(Path(agents.__file__)), path]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)  # noqa: S603 - our own file
    return here, json.loads(ran.stdout)


@pytest.mark.slow
def test_a_new_process_reads_the_same(tmp_path: Path):
    """Order, texts and ids come back as they were, and the next turn there goes on."""
    here, there = stored(str(tmp_path / "threads.db"))
    for key, read in there.items():
        name, place = key.split(":")
        assert {"lines": read["lines"], "ids": read["ids"]} == here[key]
        ids = [i for i in here[key]["ids"] if i]
        assert [i for i in read["then_ids"] if i in ids] == ids
        assert bool(ids) is (name not in REFORMATS)
        expected = [*here[key]["lines"], "human: next", "ai: again"]
        if name != "none" and place == "model_node":
            expected[len(TURN) + 1 : len(TURN) + 1] = RESULTS
        assert read["then"] == expected
