"""Prints what becomes of broken threads: bare, with a text, with deepagents', and with us."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware as DeepagentsMiddleware
from langchain.agents.middleware import ModelRequest, ModelResponse, wrap_model_call
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call
from langgraph.graph import START

from kit import BARE, Agent, calls
from langgraph_patch import with_patching
from support.wires import WIRES, refusals

# --- who is compared -------------------------------------------------------------------

Build = Callable[[Any, Any, Any], Any]


@wrap_model_call
def own_text(
    request: ModelRequest, handler: Callable[[ModelRequest], ModelResponse]
) -> ModelResponse:
    """What many applications do: each call that has no result is answered with one text."""
    answered = {m.tool_call_id for m in request.messages if isinstance(m, ToolMessage)}
    messages: list[Any] = []
    for message in request.messages:
        open_calls = message.tool_calls if isinstance(message, AIMessage) else ()
        texts = [
            ToolMessage("Tool call was cancelled.", tool_call_id=call["id"])
            for call in open_calls
            if call["id"] not in answered
        ]
        messages += [message, *texts]
    return handler(request.override(messages=messages))


COLUMNS: dict[str, Build] = {
    "`create_react_agent` alone": BARE["react_v2"],
    "`create_agent` alone": BARE["create_agent"],
    "a text of your own": lambda *parts: BARE["create_agent"](*parts, middleware=[own_text]),
    "deepagents' middleware": lambda *parts: BARE["create_agent"](
        *parts, middleware=[DeepagentsMiddleware()]
    ),
    "langgraph-patch": lambda *parts: with_patching(BARE["create_agent"](*parts)),
}

MAIL = calls(("mail", {"to": "bob"}), id="a1")
INVALID = invalid_tool_call(name="mail", args='{"to": "b', id="c1")
SENT = ToolMessage("sent to bob", tool_call_id="c1")
AGAIN = [SENT, AIMessage("It is sent.", id="s1"), MAIL.model_copy(update={"id": "a2"})]

HISTORIES: dict[str, list[BaseMessage]] = {
    "a call without a result": [MAIL],
    "a result stored behind the user's next message": [
        MAIL,
        HumanMessage("well?", id="well"),
        SENT,
    ],
    "a result in another role": [MAIL, ChatMessage("sent to bob", role="tool")],
    "a call with an id that was used before": [MAIL, *AGAIN],
    "arguments that were cut off": [AIMessage("", id="a1", invalid_tool_calls=[INVALID])],
}
"""What is between two messages of a human."""

# --- what becomes of them --------------------------------------------------------------


def model_input(agent: Agent, value: Any) -> list[BaseMessage] | None:
    """The messages that the model reads in a run; None if it refuses."""
    agent.model.seen.clear()
    try:
        agent.run(value)
    except ValueError:  # what the strict model and `create_react_agent` raise
        return None
    return agent.model.seen[-1]


def after_a_pause(build: Build) -> Agent | None:
    """A human writes something else while a tool waits."""
    agent = Agent(build, calls(("mail", {"to": "bob"}), ("wire", {})))
    agent.say("go")
    return agent if model_input(agent, {"messages": [HumanMessage("never mind")]}) else None


def after_an_edit(build: Build) -> bool:
    """The state is edited behind whatever looks at a new message; the run goes on."""
    agent = Agent(build)
    entry = next((n for n in agent.graph.nodes if n.endswith(".before_agent")), START)
    history = [HumanMessage("go"), MAIL, HumanMessage("next")]
    agent.graph.update_state(agent.config, {"messages": history}, as_node=entry)
    return model_input(agent, None) is not None


class RefusedError(ValueError):
    """What a provider answers."""

    status_code = 400


def refuse(wire: str, messages: list[BaseMessage]) -> None:
    """Raise as the provider behind a wire does."""
    if found := refusals(wire, messages):
        raise RefusedError(found[0])


def accepted(build: Build, damage: list[BaseMessage]) -> str:
    """How many wires answer a history that arrives as it is, at the first request or later."""
    history = {"messages": [HumanMessage("go"), *damage, HumanMessage("next")]}
    answered, asked = 0, 0
    for wire in WIRES:
        agent = Agent(build)
        agent.model.refuses = partial(refuse, wire)
        answered += model_input(agent, history) is not None
        asked += len(agent.model.seen)
    return f"{answered} of {len(WIRES)}" if asked else "dies"


def checkpoints_of(build: Build, turns: int = 10) -> int:
    """The checkpoints of a healthy conversation."""
    script = [[calls(("mail", {"to": "bob"}), first=n), AIMessage("done")] for n in range(turns)]
    agent = Agent(build, *(message for turn in script for message in turn))
    for _ in range(turns):
        agent.say("go")
    return len(list(agent.graph.checkpointer.list(agent.config)))


# --- the table -------------------------------------------------------------------------


def _yes(value: object) -> str:
    return "yes" if value else "no"


def rows() -> Iterator[tuple[str, list[str]]]:
    """Each question with its answers, in the order of the columns."""
    builds = list(COLUMNS.values())
    pauses = [after_a_pause(build) for build in builds]
    yield "a message instead of the answer: the thread goes on", [_yes(p) for p in pauses]
    known = [agent is not None and agent.read.get("c1") == "sent to bob" for agent in pauses]
    yield "... and the model knows that the mail went out", [_yes(each) for each in known]
    edits = [after_an_edit(build) for build in builds]
    yield "an edited state, then `invoke(None)`", [_yes(e) for e in edits]
    for title, damage in HISTORIES.items():
        yield f"providers that accept {title}", [accepted(build, damage) for build in builds]
    counts = [checkpoints_of(build) for build in builds]
    bare = [counts[0], *[counts[1]] * 4]
    ratios = [f"×{count / own:.2f}" for count, own in zip(counts, bare, strict=True)]
    yield "checkpoints of a healthy thread", ratios


def table() -> str:
    """The table, as Markdown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        lines = [f"| | {' | '.join(COLUMNS)} |", f"|---|{len(COLUMNS) * '---|'}"]
        lines += [f"| {title} | {' | '.join(cells)} |" for title, cells in rows()]
    return "\n".join(lines)


if __name__ == "__main__":
    logging.disable()  # the integrations log each block that they drop
    sys.stdout.write(f"{table()}\n")
