"""Print which bugs of LangGraph and its companions the installed versions have.

    python tests/langgraph_bugs.py

Each check is a run without langgraph-patch. `docs/pages/compatibility.md` says what each bug means
for a thread.
"""

# ruff: noqa: PLC0415 - old versions lack some of these modules

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, TypedDict

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent
from langgraph.types import Command, Send, interrupt

THREAD: Any = {"configurable": {"thread_id": "1"}}


class Model(GenericFakeChatModel):
    """Says what its script has."""

    def bind_tools(self, *_: Any, **__: Any) -> Model:
        """The model itself."""
        return self


def calls(*names: str) -> AIMessage:
    """A message with a call of each tool."""
    made = [{"name": name, "args": {}, "id": f"c-{name}"} for name in names]
    return AIMessage("", tool_calls=made, id="a1")


def go() -> dict[str, Any]:
    """The input of a run."""
    return {"messages": [HumanMessage("go", id="h1")]}


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
    builder = StateGraph(MessagesState)
    for node in "abc":
        builder.add_node(node, lambda _: {})
    builder.add_edge(START, "a").add_edge("a", "b").add_edge("b", "c")
    with suppress(OSError):
        builder.compile(checkpointer=saver).invoke(go(), THREAD, durability="async")
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
    done = []

    @tool
    def mail() -> str:
        """Send a mail."""
        done.append("mail")
        return "sent"

    @tool
    def wire() -> str:
        """Wire money, if a human agrees."""
        return str(interrupt("sure?"))

    script = iter([calls("mail", "wire"), AIMessage("fine")])
    agent = create_react_agent(Model(messages=script), [mail, wire])
    builder = StateGraph(MessagesState).add_node("agent", agent).add_edge(START, "agent")
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke(go(), THREAD, durability="sync")
    graph.invoke(Command(resume="yes"), THREAD, durability="sync")
    return len(done) > 1


def fork_that_does_not_ask() -> bool:
    """A fork from a pause that was answered takes the stored answer and does not ask."""
    builder = StateGraph(MessagesState).add_node("a", lambda _: {"messages": [interrupt("sure?")]})
    graph = builder.add_edge(START, "a").compile(checkpointer=InMemorySaver())
    graph.invoke(go(), THREAD, durability="sync")
    paused = graph.get_state(THREAD).config
    graph.invoke(Command(resume="yes"), THREAD, durability="sync")
    graph.invoke(None, paused, durability="sync")
    return not graph.get_state(THREAD).interrupts


def _delta_state() -> Any:
    from langgraph.channels import DeltaChannel
    from langgraph.graph.message import _messages_delta_reducer

    return TypedDict(
        "State", {"messages": Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]}
    )


def delta_message_without_an_id() -> bool:
    """A message that a node wrote to `DeltaChannel` state without an id has none in the thread."""
    builder = StateGraph(_delta_state()).add_node("a", lambda _: {"messages": [AIMessage("hi")]})
    graph = builder.add_edge(START, "a").compile(checkpointer=InMemorySaver())
    graph.invoke(go(), THREAD)
    ids = [[m.id for m in graph.get_state(THREAD).values["messages"]] for _ in range(2)]
    return None in ids[0] or ids[0] != ids[1]


def delta_result_beside_a_pause() -> bool:
    """A message beside a pause of `DeltaChannel` state: the abandoned result is added to it."""

    @tool
    def mail() -> str:
        """Send a mail."""
        return "sent"

    @tool
    def wire() -> str:
        """Wire money, if a human agrees."""
        return str(interrupt("sure?"))

    said = iter([calls("mail", "wire"), AIMessage("fine")])

    def model(_: Any) -> Any:
        return {"messages": [next(said)]}

    def sends(state: Any) -> Any:
        made = getattr(state["messages"][-1], "tool_calls", [])
        return [Send("tools", [call]) for call in made] or "__end__"

    builder = StateGraph(_delta_state()).add_node("agent", model)
    builder.add_node("tools", ToolNode([mail, wire]))
    builder.add_edge(START, "agent").add_conditional_edges("agent", sends, ["tools", "__end__"])
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke(go(), THREAD, durability="sync")
    graph.invoke(go(), THREAD, durability="sync")
    return any(m.type == "tool" for m in graph.get_state(THREAD).values["messages"])


def delta_update_of_a_new_thread() -> bool:
    """`update_state` on a thread without checkpoints writes no message of `DeltaChannel` state."""
    builder = StateGraph(_delta_state()).add_node("a", lambda _: {}).add_edge(START, "a")
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.update_state(THREAD, go(), as_node="a")
    return not graph.get_state(THREAD).values.get("messages")


def question_as_an_error() -> bool:
    """A `ToolNode` with error handling and a wrapper makes an error of `interrupt()`."""

    @tool
    def wire() -> str:
        """Wire money, if a human agrees."""
        return str(interrupt("sure?"))

    node = ToolNode([wire], handle_tool_errors=True, wrap_tool_call=lambda call, run: run(call))
    builder = StateGraph(MessagesState).add_node("a", lambda _: {"messages": [calls("wire")]})
    builder.add_node("tools", node).add_edge(START, "a").add_edge("a", "tools")
    graph = builder.compile(checkpointer=InMemorySaver())
    graph.invoke(go(), THREAD)
    return not graph.get_state(THREAD).interrupts


def calls_under_one_index() -> bool:
    """Two calls that a provider streams under one index are merged into one."""
    pieces = [("c1", "mail", "{}"), ("c2", "wire", "{}")]
    chunks = [
        AIMessageChunk("", tool_call_chunks=[tool_call_chunk(id=i, name=n, args=a, index=0)])
        for i, n, a in pieces
    ]
    return len((chunks[0] + chunks[1]).tool_call_chunks) == 1


def own_middleware_of_a_name() -> bool:
    """`create_deep_agent` refuses a middleware with the name of one of its own."""
    from deepagents import create_deep_agent
    from deepagents.middleware.patch_tool_calls import PatchToolCallsMiddleware

    class Own(PatchToolCallsMiddleware):
        name = PatchToolCallsMiddleware.__name__

    try:
        create_deep_agent(Model(messages=iter(())), middleware=[Own()])
    except (AssertionError, ValueError) as error:
        return "duplicate middleware" in str(error)
    return False


CHECKS: tuple[Callable[[], bool], ...] = (
    checkpoint_with_a_lost_parent,
    interrupt_that_stays,
    nested_tools_that_run_again,
    fork_that_does_not_ask,
    delta_message_without_an_id,
    delta_result_beside_a_pause,
    delta_update_of_a_new_thread,
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
