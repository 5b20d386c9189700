"""Print which bugs of LangGraph and its companions the installed versions have.

    python scripts/langgraph_bugs.py

Each check is a run without langgraph-patch. `docs/pages/compatibility.md` says what each bug means
for a thread.
"""

# ruff: noqa: PLC0415 - old versions lack some of these modules

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, RemoveMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import MessagesState
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.types import Command, interrupt

from kit import DeltaState, Desk, StrictModel, above, calls, loop, send_each

THREAD: Any = {"configurable": {"thread_id": "1"}}
MAIL_AND_WIRE = calls(("mail", {"to": "bob"}), ("wire", {}), id="a1")


def go() -> dict[str, Any]:
    """The input of a run."""
    return {"messages": [HumanMessage("go", id="h1")]}


def of_one_node(node: Any, state: Any = MessagesState) -> Any:
    """A graph with this node."""
    return above(node, state=state).compile(checkpointer=InMemorySaver())


def checkpoint_with_a_lost_parent() -> bool:
    """A run whose checkpoint is not written stores the next one, which names it as its parent."""

    class Full(InMemorySaver):
        failed = False

        def put(self, config: Any, checkpoint: Any, metadata: Any, versions: Any) -> Any:
            if metadata["step"] == 1 and not self.failed:
                self.failed = True
                raise OSError("disk full")
            return super().put(config, checkpoint, metadata, versions)

    saver = Full()
    graph = above(*[lambda _: {}] * 3).compile(checkpointer=saver)
    with suppress(OSError):
        graph.invoke(go(), THREAD, durability="async")
    rows = list(saver.list(THREAD))
    known = {row.config["configurable"]["checkpoint_id"] for row in rows}
    parents = [row.parent_config["configurable"] for row in rows if row.parent_config]
    return any(parent["checkpoint_id"] not in known for parent in parents)


def interrupt_that_stays() -> bool:
    """With durability="exit", the abandoned run's interrupt stays beside that of the next run."""

    @entrypoint(checkpointer=InMemorySaver())
    def ask(question: str) -> Any:
        return interrupt(question)

    for question in ("first?", "second?"):
        ask.invoke(question, THREAD, durability="exit")
    try:
        return bool(ask.invoke(Command(resume="yes"), THREAD, durability="exit") != "yes")
    except RuntimeError as error:
        return "multiple pending interrupts" in str(error)


def nested_tools_that_run_again() -> bool:
    """A nested graph that is resumed runs its finished tools again."""
    desk = Desk()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="create_react_agent has been moved")
        agent = create_react_agent(StrictModel(script=[MAIL_AND_WIRE]), desk.tools())
    graph = of_one_node(agent)
    graph.invoke(go(), THREAD, durability="sync")
    graph.invoke(Command(resume="yes"), THREAD, durability="sync")
    return desk.did["mail bob"] > 1


def used_answer_for_the_next_question() -> bool:
    """`invoke(None)` gives an answer without an id, which was used, to the next question too."""
    read: list[Any] = []
    graph = of_one_node(lambda _: read.append((interrupt("day?"), interrupt("card?"))))
    graph.invoke(go(), THREAD)
    graph.invoke(Command(resume="Monday"), THREAD)
    graph.invoke(None, THREAD)
    return read == [("Monday", "Monday")]


def _delta_state() -> Any:
    from langgraph.channels import DeltaChannel  # noqa: F401 - older versions lack it

    return DeltaState


def delta_message_without_an_id() -> bool:
    """A message that a node wrote to `DeltaChannel` state without an id has none in the thread."""
    graph = of_one_node(lambda _: {"messages": [AIMessage("hi")]}, _delta_state())
    graph.invoke(go(), THREAD)
    ids = [[m.id for m in graph.get_state(THREAD).values["messages"]] for _ in range(2)]
    return None in ids[0] or ids[0] != ids[1]


def delta_result_beside_a_pause() -> bool:
    """A message beside a pause of `DeltaChannel` state: the abandoned result is added to it."""
    script = iter([MAIL_AND_WIRE, AIMessage("fine")])
    builder = loop(StrictModel(), Desk().tools(), state=_delta_state(), router=send_each)
    builder.nodes["agent"].runnable = RunnableLambda(lambda _: {"messages": [next(script)]})
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke(go(), THREAD, durability="sync")
    graph.invoke(go(), THREAD, durability="sync")
    return any(m.type == "tool" for m in graph.get_state(THREAD).values["messages"])


def delta_update_of_a_new_thread() -> bool:
    """`update_state` on a thread without checkpoints writes no message of `DeltaChannel` state."""
    graph = of_one_node(lambda _: {}, _delta_state())
    graph.update_state(THREAD, go(), as_node="node1")
    return not graph.get_state(THREAD).values.get("messages")


def delta_that_keeps_removed_messages() -> bool:
    """`RemoveMessage(REMOVE_ALL_MESSAGES)` removes nothing from `DeltaChannel` state."""
    everything = RemoveMessage(REMOVE_ALL_MESSAGES)
    graph = of_one_node(lambda _: {"messages": [everything]}, _delta_state())
    return bool(graph.invoke(go(), THREAD)["messages"])


def question_as_an_error() -> bool:
    """A `ToolNode` with error handling and a wrapper makes an error of `interrupt()`."""
    node = ToolNode(
        Desk().tools(), handle_tool_errors=True, wrap_tool_call=lambda call, run: run(call)
    )
    graph = above(lambda _: {"messages": [calls(("wire", {}))]}, node)
    paused = graph.compile(checkpointer=InMemorySaver())
    paused.invoke(go(), THREAD)
    return not paused.get_state(THREAD).interrupts


def calls_under_one_index() -> bool:
    """Two calls that a provider streams under one index are merged into one."""
    first, second = (
        AIMessageChunk("", tool_call_chunks=[tool_call_chunk(id=i, name=n, args="{}", index=0)])
        for i, n in (("c1", "mail"), ("c2", "wire"))
    )
    return len((first + second).tool_call_chunks) == 1


def own_middleware_of_a_name() -> bool:
    """`create_deep_agent` refuses a middleware with the name of one of its own."""
    from deepagents import create_deep_agent
    from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware

    class Own(PatchToolCallsMiddleware):
        name = PatchToolCallsMiddleware.__name__

    try:
        create_deep_agent(StrictModel(), middleware=[Own()])
    except (AssertionError, ValueError) as error:
        return "duplicate middleware" in str(error)
    return False


CHECKS: tuple[Callable[[], bool], ...] = (
    checkpoint_with_a_lost_parent,
    interrupt_that_stays,
    nested_tools_that_run_again,
    used_answer_for_the_next_question,
    delta_message_without_an_id,
    delta_result_beside_a_pause,
    delta_update_of_a_new_thread,
    delta_that_keeps_removed_messages,
    question_as_an_error,
    calls_under_one_index,
    own_middleware_of_a_name,
)


def result(check: Callable[[], bool]) -> str:
    """What a check found: "yes" if the bug is there, "-" without the feature."""
    try:
        return "yes" if check() else "no"
    except ImportError:
        return "-"


def main() -> None:
    """Print one line for each bug."""
    for check in CHECKS:
        sys.stdout.write(f"{check.__name__}: {result(check)}\n")


if __name__ == "__main__":
    main()
