"""Prints what becomes of broken threads without this package, with deepagents', and with it."""

from __future__ import annotations

import logging
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware as DeepagentsMiddleware
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from langgraph_patch import with_patching
from support.agents import Graph, Tools, both_calls, healthy_script, human, react_v2, stored, thread
from support.strict import StrictModel, ai
from support.wires import WIRES, refusals

# --- who is compared -------------------------------------------------------------------


def deepagents_middleware(model: Any, tools: Any, **options: Any) -> Graph:
    """`create_agent` with deepagents' repair."""
    return create_agent(model, tools, middleware=[DeepagentsMiddleware()], **options)


def patched(model: Any, tools: Any, **options: Any) -> Graph:
    """`create_agent` with the middleware of this package."""
    return with_patching(create_agent(model, tools, **options))


COLUMNS: Mapping[str, Callable[..., Graph]] = {
    "`create_react_agent` alone": react_v2,
    "`create_agent` alone": create_agent,
    "deepagents' middleware": deepagents_middleware,
    "langgraph-patch": patched,
}

DONE = AIMessage("I see.", id="done")


def history_of(broken: BaseMessage, *after: BaseMessage) -> list[BaseMessage]:
    """A turn of the model, what came after it, and a new message."""
    return [human("go"), broken, *after, human("next")]


MAIL = ai(("send_email", {"to": "bob"}, "c1"), id="a1")
CUT_OFF = AIMessage(
    "",
    id="a1",
    invalid_tool_calls=[invalid_tool_call(name="send_email", args='{"to": "b', id="c1")],
)
SENT = ToolMessage("sent to bob", tool_call_id="c1")

AGAIN = [SENT, AIMessage("It is sent.", id="s1"), MAIL.model_copy(update={"id": "a2"})]

HISTORIES = {
    "a call without a result": history_of(MAIL),
    "a result after the next message": history_of(MAIL, human("well?"), SENT),
    "a result in another role": history_of(MAIL, ChatMessage("sent to bob", role="tool")),
    "a call with an id that was used before": history_of(MAIL, *AGAIN),
    "arguments that were cut off": history_of(CUT_OFF),
}

# --- what becomes of them --------------------------------------------------------------


def model_input(graph: Graph, model: StrictModel, value: Any) -> list[BaseMessage] | None:
    """The messages that the model reads in a run; None if it refuses."""
    model.seen.clear()
    try:
        graph.invoke(value, thread())
    except ValueError:  # what the strict model and `create_react_agent` raise
        return None
    return model.seen[-1]


def says_sent(messages: list[BaseMessage] | None) -> bool:
    """Whether the model reads that the mail was sent."""
    return bool(messages) and any(
        isinstance(m, ToolMessage) and m.tool_call_id == "c1" and m.text == "sent to bob"
        for m in messages or ()
    )


def made(build: Callable[..., Graph], *script: AIMessage) -> tuple[Graph, StrictModel]:
    """An agent in memory."""
    model = StrictModel(script=list(script))
    return build(model, Tools().tools(), checkpointer=InMemorySaver()), model


def after_a_pause(build: Callable[..., Graph]) -> list[BaseMessage] | None:
    """A human writes something else while a tool waits."""
    graph, model = made(build, both_calls(), DONE)
    graph.invoke({"messages": [human("go")]}, thread())
    return model_input(graph, model, {"messages": [human("never mind")]})


def after_an_edit(build: Callable[..., Graph]) -> list[BaseMessage] | None:
    """The state is edited behind whatever looks at a new message; the run goes on."""
    graph, model = made(build, DONE)
    entry = next((n for n in graph.nodes if n.endswith(".before_agent")), "__start__")
    graph.update_state(thread(), {"messages": history_of(MAIL)}, as_node=entry)
    return model_input(graph, model, None)


def given(build: Callable[..., Graph], history: list[BaseMessage]) -> str:
    """How many wires accept what the model reads of a history that arrives as it is."""
    graph, model = made(build, DONE)
    seen = model_input(graph, model, {"messages": history})
    if not model.seen:
        return "dies"
    taken = sum(not refusals(wire, seen or model.seen[-1]) for wire in WIRES)
    return f"{taken} of {len(WIRES)}"


def rows_of(build: Callable[..., Graph], turns: int = 10) -> int:
    """The checkpoints of a healthy conversation."""
    model = StrictModel(script=healthy_script(turns))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "threads.sqlite"
        with SqliteSaver.from_conn_string(str(path)) as saver:
            graph = build(model, Tools().tools(), checkpointer=saver)
            for turn in range(turns):
                graph.invoke({"messages": [human("go", f"h{turn}")]}, thread())
        return int(stored(path)["rows"]["checkpoints"])


# --- the table -------------------------------------------------------------------------


def _yes(value: object) -> str:
    return "yes" if value else "no"


def rows() -> Iterator[tuple[str, list[str]]]:
    """Each question with its answers, in the order of the columns."""
    builds = list(COLUMNS.values())
    pauses = [after_a_pause(build) for build in builds]
    yield "a message instead of the answer: the thread goes on", [_yes(p) for p in pauses]
    yield "... and the model knows that the mail went out", [_yes(says_sent(p)) for p in pauses]
    edits = [after_an_edit(build) for build in builds]
    yield "an edited state, then `invoke(None)`", [_yes(e) for e in edits]
    for title, history in HISTORIES.items():
        yield f"integrations that take {title}", [given(build, history) for build in builds]
    bare = rows_of(create_agent)
    ratios = [
        rows_of(build) / (rows_of(react_v2) if build is react_v2 else bare) for build in builds
    ]
    yield "checkpoints of a healthy thread", [f"×{ratio:.2f}" for ratio in ratios]


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
