"""A user's code, with every public name: type checkers read it, it is never run.

`assert_type` states the type that a user gets; a `type: ignore` states that a mistake is seen
(mypy's `warn_unused_ignores` makes it an error if it is not).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Literal, TypedDict, assert_type

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCallChunk
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolRuntime

from langgraph_patch import (
    Change,
    DanglingCall,
    Patch,
    PatchError,
    PatchNode,
    idempotency_key,
    is_placeholder,
    patch_messages,
    patch_model,
    patch_node,
    set_language,
    validate_messages,
    with_patching,
)
from langgraph_patch.errors import (
    EvidenceError,
    GraphError,
    MessagesError,
    ModelError,
    OptionError,
    StreamError,
    ThreadError,
)
from langgraph_patch.graph.model import PatchedModel
from langgraph_patch.history.ids import PLACEHOLDER_KEY
from langgraph_patch.history.repair import DefectKind
from langgraph_patch.history.texts import Evidence, Finding
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.streaming import (
    RETRACTED_KEY,
    UNFINISHED_KEY,
    Checker,
    Turn,
    afinal_answers,
    asplit_stream,
    final_answers,
    first_chunk_checker,
    full_stream_checker,
    merge_tool_call_chunks,
    message_from_stream,
    split_stream,
)
from langgraph_patch.threads import (
    ThreadRepair,
    ThreadReport,
    arepair_thread,
    ascan_threads,
    aundo_repair,
    repair_thread,
    scan_threads,
    undo_repair,
)

Kind = Literal[
    "inserted",
    "recovered",
    "restored",
    "moved",
    "dropped",
    "converted",
    "promoted",
    "renamed",
    "corrected",
]  # of a change
Cause = Literal["awaiting_input", "failed", "not_started", "cancelled", "malformed", "unknown"]


# --- messages ----------------------------------------------------------------------------


def patches(history: list[BaseMessage]) -> None:
    """A list of messages goes in; a patch with typed parts comes out."""
    patch = assert_type(patch_messages(history), Patch)
    assert_type(patch.messages, list[BaseMessage])
    assert_type(patch.before, list[BaseMessage])
    assert_type(patch.changes, tuple[Change, ...])
    assert_type(bool(patch), bool)
    assert_type(patch.to_dict(), dict[str, Any])
    for change in patch.changes:
        assert_type(change.kind, Kind)
        assert_type(change.index, int)
        assert_type(change.tool_call_id, str)
        assert_type(change.name, str | None)
        assert_type(change.cause, Cause | None)
        assert_type(change.before, BaseMessage | None)
        assert_type(change.after, BaseMessage | None)
        assert_type(change.to_dict(), dict[str, Any])


def accepts_what_langgraph_accepts() -> None:
    """Tuples and dicts are messages, too."""
    patch_messages([("human", "hello"), {"role": "assistant", "content": "hi"}])


def defects(history: list[BaseMessage]) -> None:
    """What is wrong is a list of values."""
    found = assert_type(validate_messages(history), list[Change])
    for change in found:
        assert_type(change.defect, DefectKind)


def knows(history: list[BaseMessage], real: ToolMessage) -> None:
    """What a user knows of calls is handed in."""
    finding = Finding("failed", error="no money")
    assert_type(finding.result, ToolMessage | None)
    assert_type(finding.error, str | None)
    evidence: Evidence = {(0, 0): Finding(result=real), (0, 1): finding}
    patch_messages(history, evidence=evidence)


def placeholder_text(call: DanglingCall) -> str:
    """A text of one's own, and all that it may be made of."""
    assert_type(call.tool_call_id, str)
    assert_type(call.name, str)
    assert_type(call.args, Mapping[str, Any])
    assert_type(call.cause, Cause)
    assert_type(call.error, str | None)
    assert_type(call.message, AIMessage)
    assert_type(call.index, int)
    return f"nobody knows what {call.name} did"


def as_a_message(call: DanglingCall) -> ToolMessage:
    """A message of one's own."""
    return ToolMessage("nobody knows", tool_call_id=call.tool_call_id)


def placeholders(history: list[BaseMessage]) -> None:
    """Each form that a placeholder may have, and how it is distinguished from a result."""
    set_language("zh")
    patch_messages(history, placeholder="nobody knows")
    patch_messages(history, placeholder={"unknown": "nobody knows"})
    patch_messages(history, placeholder=placeholder_text)
    patch_messages(history, placeholder=as_a_message)
    patch_messages(history, placeholder=placeholder_text, replace_foreign=True)
    assert_type(is_placeholder(history[0]), bool)
    assert_type(PLACEHOLDER_KEY, Literal["langgraph_patch"])


def mistakes(history: list[BaseMessage]) -> None:
    """What is no option is seen before anything runs."""
    set_language("de")  # type: ignore[arg-type]
    patch_messages(history, language="de")  # type: ignore[call-arg]
    patch_messages(history, placeholder={"stopped": "no such cause"})  # type: ignore[dict-item]
    patch_messages(history, placeholder=len)  # type: ignore[arg-type]
    patch_messages(history, "nobody knows")  # type: ignore[call-arg]
    patch_messages(history).messages = []  # type: ignore[misc]
    Finding("stopped")  # type: ignore[arg-type]


# --- graphs ------------------------------------------------------------------------------


class State(TypedDict):
    """A state of one's own."""

    messages: list[BaseMessage]


def model(state: MessagesState) -> dict[str, Any]:
    """Stands for a model."""
    return {"messages": [AIMessage(f"{len(state['messages'])}")]}


def log(patch: Patch, config: RunnableConfig) -> None:
    """Write a repair down."""


def wrapped(saver: BaseCheckpointSaver[str]) -> None:
    """Builder in, builder out; compiled in, compiled out: with the types that they have."""
    builder = StateGraph(MessagesState).add_node("model", model).add_edge(START, "model")
    same = assert_type(
        with_patching(builder, on_patch=log), StateGraph[MessagesState, None, MessagesState]
    )
    compiled = with_patching(
        same.compile(checkpointer=saver),
        model_node=["model"],
        placeholder=placeholder_text,
        messages_key="messages",
        recover=False,
        replace_foreign=True,
        on_patch=log,
    )
    assert_type(
        compiled, CompiledStateGraph[MessagesState, None, MessagesState, MessagesState]
    ).invoke({"messages": []})
    assert_type(with_patching(StateGraph(State)), StateGraph[State, None, State])
    with_patching("model")  # type: ignore[type-var]


def nodes() -> None:
    """A node is placed like any other."""
    node = PatchNode(messages_key="messages", recover="required", on_patch=log)
    builder = StateGraph(MessagesState)
    builder.add_node("patch_tool_calls", assert_type(patch_node, PatchNode))
    builder.add_node("again", node)
    PatchNode(recover="always")  # type: ignore[arg-type]


def agents(chat_model: BaseChatModel) -> None:
    """The middleware goes into the list of `create_agent`; the agent can be wrapped."""
    agent = create_agent(chat_model, middleware=[PatchToolCallsMiddleware(recover=False)])
    with_patching(agent).invoke({"messages": []})
    PatchToolCallsMiddleware(recover="always")  # type: ignore[arg-type]


def models(chat_model: BaseChatModel) -> None:
    """A patched model is a runnable that binds tools."""
    assert_type(patch_model(chat_model), PatchedModel)
    patch_model(chat_model, recover="always")  # type: ignore[arg-type]


def keys(runtime: ToolRuntime[None, dict[str, Any]], config: RunnableConfig) -> None:
    """A tool has a runtime or a config."""
    assert_type(idempotency_key(runtime, runtime.tool_call_id), str)
    idempotency_key(config, "call_1")
    idempotency_key("call_1", "call_1")  # type: ignore[arg-type]


# --- threads -----------------------------------------------------------------------------

Status = Literal["healthy", "damaged", "paused", "unreadable"]
Outcome = Literal["healthy", "planned", "repaired", "paused", "young", "busy", "moved", "refused"]


def scans(saver: BaseCheckpointSaver[str]) -> None:
    """A scan is an iterator of reports."""
    reports = scan_threads(saver, messages_key="messages", thread_ids=["1"])
    for report in assert_type(reports, Iterator[ThreadReport]):
        assert_type(report.thread_id, str)
        assert_type(report.namespace, str)
        assert_type(report.status, Status)
        assert_type(report.checkpoint_id, str | None)
        assert_type(report.age, float | None)
        assert_type(report.messages, int | None)
        assert_type(report.defects, tuple[Change, ...])
        assert_type(report.patch, Patch | None)
        assert_type(report.reason, str | None)
        assert_type(report.to_dict(), dict[str, Any])


def repairs(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    config: RunnableConfig,
    saver: BaseCheckpointSaver[str],
) -> None:
    """A repair is a value that can be undone."""
    repair = repair_thread(
        graph, config, on_pause="abandon", min_age=0, placeholder=placeholder_text
    )
    assert_type(repair, ThreadRepair)
    assert_type(repair.thread_id, str)
    assert_type(repair.namespace, str)
    assert_type(repair.outcome, Outcome)
    assert_type(repair.reason, str | None)
    assert_type(repair.patch, Patch | None)
    assert_type(repair.before, str | None)
    assert_type(repair.after, str | None)
    assert_type(repair.skipped, bool)
    assert_type(repair.to_dict(), dict[str, Any])
    assert_type(undo_repair(saver, config), str)
    assert_type(undo_repair(graph, config), str)
    repair_thread(graph, config, on_pause="drop")  # type: ignore[arg-type]


async def asynchronously(
    graph: CompiledStateGraph[Any, Any, Any, Any],
    config: RunnableConfig,
    saver: BaseCheckpointSaver[str],
) -> None:
    """The async functions."""
    reports = assert_type(ascan_threads(saver), AsyncIterator[ThreadReport])
    assert_type([report async for report in reports], list[ThreadReport])
    assert_type(await arepair_thread(graph, config, dry_run=True), ThreadRepair)
    assert_type(await aundo_repair(saver, config), str)


# --- streams -----------------------------------------------------------------------------


def mine(turn: Turn) -> bool | None:
    """A checker of one's own, and all that it may look at."""
    assert_type(turn.checker, Checker)
    assert_type(turn.wrote, bool)
    assert_type(turn.phase, str | None)
    assert_type(turn.chunks, list[AIMessage])
    assert_type(turn.called, bool)
    assert_type(turn.spoke, bool)
    assert_type(turn.ended, bool)
    assert_type(turn.answer, bool | None)
    return full_stream_checker(turn)


def splits(chat_model: BaseChatModel) -> None:
    """The answer, and the chunks."""
    for checker in (first_chunk_checker, full_stream_checker, mine):
        calls_tools, chunks = split_stream(iter([AIMessageChunk(content="")]), checker=checker)
        assert_type(calls_tools, bool)
        assert_type(list(chunks), list[AIMessageChunk])
        chunks.close()
    split_stream(chat_model.stream("hello"))


async def asplits(chat_model: BaseChatModel) -> None:
    """The same of an async stream."""
    calls_tools, chunks = await asplit_stream(chat_model.astream("hello"))
    assert_type(calls_tools, bool)
    assert_type([chunk async for chunk in chunks], list[AIMessageChunk])
    await chunks.aclose()


def answers(graph: CompiledStateGraph[Any, Any, Any, Any]) -> None:
    """Tokens with their metadata."""
    tokens = final_answers(graph.stream({}, stream_mode="messages"), checker=mine)
    for token, metadata in tokens:
        assert_type(token, BaseMessage)
        assert_type(metadata, dict[str, Any])
        metadata.get(RETRACTED_KEY)
    assert_type(RETRACTED_KEY, Literal["langgraph_patch_retracted"])
    parts = graph.stream({}, stream_mode=["messages", "values"], version="v2")
    assert_type(final_answers(parts, internal=True, other_modes=True), Iterator[Any])


async def aanswers(graph: CompiledStateGraph[Any, Any, Any, Any]) -> None:
    """The same, async."""
    async for token, metadata in afinal_answers(graph.astream({}, stream_mode="messages")):
        assert_type(token, BaseMessage)
        assert_type(metadata, dict[str, Any])


def cut(chunks: list[AIMessageChunk]) -> None:
    """What is left of a stream that was cut."""
    message = assert_type(message_from_stream(chunks, ended=False), AIMessage)
    message.additional_kwargs.get(UNFINISHED_KEY)
    assert_type(UNFINISHED_KEY, Literal["langgraph_patch_unfinished"])
    assert_type(merge_tool_call_chunks(chunks[0].tool_call_chunks), list[ToolCallChunk])


# --- errors ------------------------------------------------------------------------------


def errors() -> None:
    """One root; each leaf can be caught by itself, and three are also what Python calls them."""
    roots: list[type[PatchError]] = [EvidenceError, ThreadError]
    values: list[type[ValueError]] = [GraphError, OptionError, StreamError]
    types: list[type[TypeError]] = [MessagesError]
    attributes: list[type[AttributeError]] = [ModelError]
    try:
        scan_threads("threads.sqlite")  # type: ignore[arg-type]
    except (*roots, *values, *types, *attributes) as error:
        raise PatchError(str(error)) from error
