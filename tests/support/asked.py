"""Threads with a picture, an order of roles or a blank that a provider refuses, in each turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START

from kit import tool_of
from support.refused import CONFIG, PLACES, RefusingModel, requests

BAD = {"type": "image", "base64": "YmFk", "mime_type": "image/png"}
_CALL: Any = {"name": "look", "args": {}, "id": "c1abcdefg", "type": "tool_call"}
ASKED, CALLED = HumanMessage("Look.", id="h1"), AIMessage("", tool_calls=[_CALL], id="a1")
SAID = AIMessage("I see.", id="a2")


def _seen(*blocks: Any) -> ToolMessage:
    return ToolMessage([*blocks], tool_call_id=_CALL["id"], name="look", id="t1")


TEXT = {"type": "text", "text": "see"}
AGAIN = HumanMessage("Well?")
STATES: dict[str, tuple[list[Any], HumanMessage | None]] = {
    "a picture in an older message": ([HumanMessage([TEXT, BAD], id="h1"), SAID], AGAIN),
    "a picture in an older result": ([ASKED, CALLED, _seen(TEXT, BAD), SAID], AGAIN),
    "a picture in a result of this turn": ([], HumanMessage("Look.")),
    "a picture in the newest message": ([ASKED, SAID], HumanMessage([TEXT, BAD])),
    "a human message behind a result": ([ASKED, CALLED, _seen(TEXT)], AGAIN),
    "two human messages": ([ASKED, HumanMessage("Now.", id="h2")], AGAIN),
    "a message of a model at the end": ([ASKED, SAID], None),
    "a picture, and a message behind its result": ([ASKED, CALLED, _seen(TEXT, BAD)], AGAIN),
    "an answer at the beginning": ([SAID], AGAIN),
    "a call at the beginning": ([CALLED, _seen(TEXT), SAID], AGAIN),
    "an empty message of a human": ([ASKED, SAID, HumanMessage(" ", id="h2")], AGAIN),
    "an empty newest message": ([ASKED, SAID], HumanMessage("")),
    "a blank text beside another": (
        [HumanMessage([TEXT, {"text": ""}, "\n"], id="h1"), SAID],
        AGAIN,
    ),
}
"""What a thread has -> its history, and the message of its first turn."""


def look() -> list[Any]:
    """See something that the model cannot read."""
    return [TEXT, BAD]


def four_turns(place: str, rule: Callable[[Any], str | None], state: str) -> list[int]:
    """How many requests each of four turns of a thread took; 0 for one that was refused."""
    history, first = STATES[state]
    model = RefusingModel(rule=rule)
    if not history:
        model.script = [CALLED]
    tool = tool_of(look)
    graph = PLACES[place](model, [tool], checkpointer=InMemorySaver())
    graph.update_state(CONFIG, {"messages": history}, as_node=START)
    messages = [first, *(HumanMessage(f"Turn {number}.") for number in (2, 3, 4))]
    return [requests(graph, model, [] if m is None else m) for m in messages]
