"""A user's code, with every public name: type checkers read it, it is never run.

`assert_type` states the type that a user gets; a `type: ignore` states that a mistake is seen
(mypy's `warn_unused_ignores` makes it an error if it is not).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, assert_type

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.messages.tool import ToolCallChunk
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolRuntime
from langgraph_sdk import get_sync_client

import langgraph_patch as lp
from langgraph_patch import testing
from langgraph_patch.history.changes import ChangeKind, DefectKind
from langgraph_patch.history.findings import Cause
from langgraph_patch.model import PatchedModel

AnyGraph = CompiledStateGraph[Any, Any, Any, Any]
Saver = BaseCheckpointSaver[str]


def patches(history: list[BaseMessage], real: ToolMessage) -> None:
    """A list of messages goes in, also of tuples and dicts; a patch with typed parts comes out."""
    lp.patch_messages([("human", "hello"), {"role": "assistant", "content": "hi"}])
    failed = lp.Finding("failed", error="no money")
    evidence: lp.Evidence = {(0, 0): lp.Finding(result=real), (0, 1): failed}
    patch = assert_type(lp.patch_messages(history, evidence=evidence), lp.Patch)
    assert_type((patch.messages, patch.before), tuple[list[BaseMessage], list[BaseMessage]])
    assert_type((patch.changes, patch.to_dict()), tuple[tuple[lp.Change, ...], dict[str, Any]])
    assert_type(lp.portable_messages(history), lp.Patch)
    for change in assert_type(lp.validate_messages(history), list[lp.Change]):
        assert_type((change.kind, change.defect), tuple[ChangeKind, DefectKind])
        assert_type((change.cause, change.before), tuple[Cause | None, BaseMessage | None])


def text(call: lp.DanglingCall) -> str:
    """A text of one's own."""
    assert_type((call.args, call.cause, call.error), tuple[Mapping[str, Any], Cause, str | None])
    return f"nobody knows what {call.name} did"


def placeholders(history: list[BaseMessage]) -> None:
    """Each form that a placeholder may have; what is no option is seen before anything runs."""
    lp.set_language("zh")
    lp.patch_messages(history, placeholder="nobody knows")
    lp.patch_messages(history, placeholder={"unknown": "nobody knows"})
    forms: list[lp.Placeholder] = ["nobody knows", text]
    lp.patch_messages(history, placeholder=forms[1])
    lp.patch_messages(history, placeholder=lambda call: ToolMessage("?", tool_call_id=call.name))
    assert_type(lp.is_placeholder(history[0]), bool)
    assert_type(lp.PLACEHOLDER_KEY, Literal["langgraph_patch"])
    lp.set_language("de")  # type: ignore[arg-type]
    lp.patch_messages(history, language="de")  # type: ignore[call-arg]
    texts = {"unknown": "nobody knows"}  # a dict[str, str], as mypy reads it
    lp.patch_messages(history, placeholder=texts)
    lp.patch_messages(history, placeholder=len)  # type: ignore[arg-type]
    lp.patch_messages(history, "nobody knows")  # type: ignore[call-arg]
    lp.patch_messages(history).messages = []  # type: ignore[misc]
    lp.Finding("stopped")  # type: ignore[arg-type]
    lp.no_such_name  # type: ignore[attr-defined] # noqa: B018


def node(state: MessagesState) -> dict[str, Any]:
    """Stands for a model."""
    return {"messages": [AIMessage(f"{len(state['messages'])}")]}


def log(patch: lp.Patch, config: RunnableConfig) -> None:
    """Write a repair down."""


def look_up(call: lp.DanglingCall) -> str | None:
    """Ask the service what became of a call."""


def graphs(saver: Saver, chat_model: BaseChatModel) -> None:
    """Builder in, builder out; compiled in, compiled out: with the types that they have."""
    builder = StateGraph(MessagesState).add_node("model", node).add_edge(START, "model")
    same = assert_type(lp.with_patching(builder), StateGraph[MessagesState, None, MessagesState])
    same.add_node("patch_tool_calls", assert_type(lp.patch_node, lp.PatchNode))
    same.add_node("again", lp.PatchNode(messages_key="messages", recover="required", on_patch=log))
    graph = same.compile(checkpointer=saver)
    lp.with_patching(graph, model_node=["model"], messages_key="messages")
    recover: lp.Recover = "required"
    on_patch: lp.OnPatch = log
    reconcile: dict[str, lp.Lookup] = {"wire": look_up}
    lp.with_patching(graph, recover=recover, on_patch=on_patch, reconcile=reconcile)
    assert_type(lp.EVENT, Literal["langgraph_patch"])
    compiled = lp.with_patching(graph, recover=False, placeholder=text, on_patch=log)
    assert_type(compiled, CompiledStateGraph[MessagesState, None, MessagesState, MessagesState])
    agent = create_agent(chat_model, middleware=[lp.PatchToolCallsMiddleware(recover=False)])
    lp.with_patching(agent).invoke({"messages": []})
    assert_type(lp.patch_model(chat_model), PatchedModel[AIMessage])
    assert_type(lp.patch_model(chat_model).bind_tools([]).invoke("hello"), AIMessage)
    lp.with_patching("model")  # type: ignore[type-var]
    lp.PatchNode(recover="always")  # type: ignore[arg-type]
    lp.PatchToolCallsMiddleware(recover="always")  # type: ignore[arg-type]
    lp.patch_model(chat_model, recover="always")  # type: ignore[arg-type]


def keys(runtime: ToolRuntime[None, dict[str, Any]], config: RunnableConfig) -> None:
    """A tool has a runtime or a config."""
    assert_type(lp.idempotency_key(runtime, runtime.tool_call_id), str)
    lp.idempotency_key(config, "call_1")
    lp.idempotency_key("call_1", "call_1")  # type: ignore[arg-type]


def stored(graph: AnyGraph, config: RunnableConfig, saver: Saver) -> None:
    """A scan is an iterator of reports; a repair is a value that can be undone."""
    reports = lp.scan_threads(saver, messages_key="messages", thread_ids=["1"])
    for report in assert_type(reports, Iterator[lp.ThreadReport]):
        assert_type((report.defects, report.age), tuple[tuple[lp.Change, ...], float | None])
        assert_type((report.patch, report.to_dict()), tuple[lp.Patch | None, dict[str, Any]])
        assert_type(report.config, RunnableConfig)
    repair = lp.repair_thread(saver, config, on_pause="abandon", min_age=0, placeholder=text)
    assert_type(repair, lp.ThreadRepair)
    assert_type((repair.skipped, repair.patch), tuple[bool, lp.Patch | None])
    assert_type(lp.undo_repair(saver, config), str)
    lp.scan_threads(get_sync_client())
    with lp.open_database("threads.sqlite", write=True, trust=[("app", "User")]) as opened:
        assert_type(opened, BaseCheckpointSaver[Any])
    lp.repair_thread(saver, config, on_pause="drop")  # type: ignore[arg-type]
    lp.repair_thread(graph, config)  # type: ignore[arg-type]


def mine(turn: lp.Turn) -> bool | None:
    """A checker of one's own."""
    assert_type((turn.checker, turn.answer), tuple[lp.Checker, bool | None])
    return lp.full_stream_checker(turn)


def streams(chat_model: BaseChatModel, graph: AnyGraph) -> None:
    """Whether a turn calls tools, and its chunks; final answers; what is left of a cut stream."""
    for checker in (lp.first_chunk_checker, lp.full_stream_checker, mine):
        calls_tools, chunks = lp.split_stream(chat_model.stream("hello"), checker=checker)
        cut = assert_type(list(chunks), list[AIMessageChunk])
        chunks.close()
    assert_type(calls_tools, bool)
    answers = lp.final_answers(graph.stream({}, stream_mode="messages"), checker=mine)
    assert_type(list(answers), list[tuple[BaseMessage, dict[str, Any]]])
    parts = graph.stream({}, stream_mode=["messages", "values"], version="v2")
    assert_type(lp.final_answers(parts, internal=True, other_modes=True), Iterator[Any])
    left = assert_type(lp.message_from_stream(cut, ended=False), AIMessage)
    left.additional_kwargs.get(lp.UNFINISHED_KEY)
    assert_type(lp.UNFINISHED_KEY, Literal["langgraph_patch_unfinished"])
    assert_type(lp.RETRACTED_KEY, Literal["langgraph_patch_retracted"])
    assert_type(lp.merge_tool_call_chunks(cut[0].tool_call_chunks), list[ToolCallChunk])


async def astreams(chat_model: BaseChatModel, graph: AnyGraph) -> None:
    """The same of async streams."""
    calls_tools, chunks = await lp.asplit_stream(chat_model.astream("hello"))
    assert_type(calls_tools, bool)
    assert_type([chunk async for chunk in chunks], list[AIMessageChunk])
    await chunks.aclose()
    answers = lp.afinal_answers(graph.astream({}, stream_mode="messages"))
    assert_type([answer async for answer in answers], list[tuple[BaseMessage, dict[str, Any]]])


def breaks(graph: AnyGraph, history: list[BaseMessage]) -> None:
    """A scripted model is a chat model; each break is a context manager around a run."""
    message = assert_type(testing.calls(("wire", {"amount": 5}), first=3, id="a1"), AIMessage)
    model: BaseChatModel = testing.StrictModel(message, "done", refuses=testing.check_request)
    lp.with_patching(create_agent(model))
    happening = [testing.pause(), testing.fail("wire", OSError("no")), testing.kill(graph, "wire")]
    for each in (*happening, testing.cut(), testing.refuse()):
        with each as nothing:
            graph.invoke({})
        assert_type(nothing, None)
    try:
        testing.check_request(history)
    except testing.RefusedError as error:
        assert_type(error.status_code, int | None)
    testing.kill("wire")  # type: ignore[arg-type]


def raised() -> None:
    """One root; each leaf can be caught by itself, and some are also what Python calls them."""
    roots: list[type[lp.PatchError]] = [lp.EvidenceError, lp.ThreadError, lp.StartedError]
    ends: type[lp.PatchError] = lp.UnfinishedError
    values: list[type[ValueError]] = [lp.GraphError, lp.OptionError]
    other: type[TypeError] = lp.MessagesError
    try:
        lp.scan_threads("threads.sqlite")  # type: ignore[arg-type]
    except (*roots, *values, other, ends) as error:
        raise lp.PatchError(str(error)) from error
