"""A tool call that the model did not finish writing never runs, and a complete call always does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command
from pydantic import BaseModel

from langgraph_patch import validate_messages, with_patching
from langgraph_patch.history.streamed_calls import StreamedCalls, refuse_truncated
from support.chunk_model import ChunkModel, begin, piece, reason
from support.running import in_turn, pairs
from support.truncated_agents import AGENTS, MODES, Seen, results, run, tools
from support.truncating_servers import CUTS, TRUNCATED, WIRES


def raises(wire: str, cut: str) -> bool:
    """Whether the integration reports the end of the stream as an error itself."""
    return cut == "error" or (wire == "bedrock" and cut == "dead connection")


@pytest.mark.parametrize(
    ("wire", "name", "mode", "asynchronous", "cut"),
    pairs(WIRES, AGENTS, MODES, [False, True], CUTS),
)
def test_a_truncated_call_never_runs_and_the_thread_goes_on(wire, name, mode, asynchronous, cut):
    """A truncated call never runs and the thread goes on."""
    with WIRES[wire]() as server:
        server.cut = cut
        seen = run(AGENTS[name], server, mode=mode, asynchronous=asynchronous)
    assert seen.ran["wire_money"] == 0
    assert seen.goes_on
    assert validate_messages(seen.messages) == [] or "patch_model" in name
    if raises(wire, cut):
        assert seen.error is not None
        return
    assert seen.error is None
    assert seen.answered
    assert seen.ran["send_email"] == 1
    assert results(seen, "c1") == ["sent to bob"]
    if "patch_model" not in name:
        (answer,) = results(seen, "c2")
        # The second text is that of langchain, which is faster where only the middleware is used.
        assert any(
            text in answer
            for text in ("was not run", "has incomplete arguments", "could not be executed")
        )


@pytest.mark.parametrize(
    ("wire", "name"), in_turn(WIRES, ["hand-built", "hand-built, merges stream()", "middleware"])
)
def test_v1_content(wire, name):
    """Calls are content blocks of LangChain's own form there."""
    with WIRES[wire]() as server:
        server.calls = (TRUNCATED,)
        server.__dict__["model"] = server.new_model(output_version="v1")
        seen = run(AGENTS[name], server, mode="messages")
    assert seen.ran == {}
    assert seen.answered
    assert seen.goes_on


@pytest.mark.parametrize("name", ["hand-built", "middleware"])
def test_a_damaged_history_and_a_truncated_call_in_one_turn(name):
    """Both repairs are written."""
    thinking = [{"type": "thinking", "thinking": "two calls", "signature": "c2lnbmVk"}]
    call = {"name": "send_email", "args": {"to": "x"}, "id": "c9"}
    seen = Seen()
    with WIRES["anthropic"]() as server:
        server.calls = (TRUNCATED,)
        graph = AGENTS[name](server.model, tools(seen))
        config = {"configurable": {"thread_id": "1"}}
        history = [HumanMessage("hi"), AIMessage(thinking, tool_calls=[call])]
        graph.update_state(config, {"messages": history}, as_node="tools")
        graph.invoke({"messages": [("user", "book it")]}, config)
    messages = graph.get_state(config).values["messages"]
    assert [m.type for m in messages] == ["human", "ai", "tool", "human", "ai", "tool", "ai"]
    assert validate_messages(messages) == []
    assert seen.ran == {}


# --- what a node does with its model ---------------------------------------------------------

CUT = [begin("wire_money", "c2"), piece('{"amount": 30')]


def graph_of(call: Any, schema: Any = MessagesState, acall: Any = None) -> Any:
    """A graph with one patched node."""
    builder = StateGraph(schema)
    builder.add_node("model", RunnableLambda(call, acall) if acall else call)
    builder.add_edge(START, "model")
    return with_patching(builder.compile())


def merged(chunks: Any) -> AIMessageChunk:
    """What a node makes of a stream; an error ends it."""
    whole = None
    try:
        for chunk in chunks:
            whole = chunk if whole is None else whole + chunk
    except OSError:
        pass
    return whole


class Pydantic(BaseModel):
    """A pydantic state."""

    messages: Annotated[list, add_messages] = []


@dataclass
class Data:
    """A dataclass state."""

    messages: Annotated[list, add_messages] = field(default_factory=list)


OUTPUTS = {
    "a dict": (MessagesState, lambda m: {"messages": [m]}),
    "one message": (MessagesState, lambda m: {"messages": m}),
    "a command": (MessagesState, lambda m: Command(update={"messages": [m]})),
    "a command of pairs": (MessagesState, lambda m: Command(update=[("messages", [m])])),
    "commands": (MessagesState, lambda m: [Command(update={"messages": [m]})]),
    "a pydantic state": (Pydantic, lambda m: Pydantic(messages=[m])),
    "a dataclass state": (Data, lambda m: Data(messages=[m])),
}


UNUSUAL = ("a command of pairs", "a pydantic state", "a dataclass state")


@pytest.mark.parametrize("form", OUTPUTS)
def test_every_form_of_output_is_corrected_and_the_usual_ones_ask_again(form):
    """After any other form of output the turn ends, and the call does not run."""
    schema, output = OUTPUTS[form]
    model = ChunkModel(turns=[CUT])

    def call(state):
        history = state["messages"] if isinstance(state, dict) else state.messages
        return output(merged(model.stream(history)))

    messages = graph_of(call, schema).invoke({"messages": [HumanMessage("go")]})["messages"]
    if form in UNUSUAL:
        assert [m.type for m in messages] == ["human", "ai"]
        assert not messages[-1].tool_calls
        return
    assert [m.type for m in messages] == ["human", "ai", "tool", "ai"]
    assert messages[-1].text == "done"
    assert [m.type for m in model.received[1]] == ["human", "ai", "tool"]
    assert validate_messages(messages) == []


def test_a_node_that_keeps_what_came_before_an_error():
    """A node that keeps what came before an error."""
    model = ChunkModel(turns=[[*CUT, OSError("reset")]])
    graph = graph_of(lambda state: {"messages": merged(model.stream(state["messages"]))})
    messages = graph.invoke({"messages": [HumanMessage("go")]})["messages"]
    assert [m.type for m in messages] == ["human", "ai", "tool", "ai"]


def test_a_node_that_stops_reading():
    """A node that stops reading."""
    model = ChunkModel(turns=[[*CUT, piece("00}")]])
    kept = []

    def call(state):
        stream = model.stream(state["messages"])
        kept.append(stream)  # not closed when the node returns
        if len(kept) > 1:
            return {"messages": merged(stream)}
        return {"messages": next(stream) + next(stream)}

    messages = graph_of(call).invoke({"messages": [HumanMessage("go")]})["messages"]
    assert [m.type for m in messages] == ["human", "ai", "tool", "ai"]


def test_a_truncated_message_among_others():
    """Two model runs in one node: only the message that is truncated is corrected."""
    whole = [begin("send_email", "c1", '{"to": "bob"}')]
    model = ChunkModel(turns=[whole, CUT], streaming=True)

    def call(state):
        return {"messages": [model.invoke(state["messages"]), model.invoke(state["messages"])]}

    _, first, second = graph_of(call).invoke({"messages": [HumanMessage("go")]})["messages"]
    assert [c["id"] for c in first.tool_calls] == ["c1"]
    assert not second.tool_calls


def test_the_updates_of_a_turn_that_asks_again():
    """The updates of a turn that asks again."""
    with WIRES["chat"]() as server:
        server.calls = (TRUNCATED,)
        seen = run(AGENTS["create_react_agent"], server, mode="updates")
    (update,) = seen.chunks
    assert [m.type for m in update["agent"]["messages"]] == ["ai", "tool", "ai"]


async def test_parallel_models_in_one_node():
    """Async: the chunks of several model runs come in turns."""
    cut, whole = ChunkModel(turns=[CUT]), ChunkModel(turns=[[begin("a", "c1"), piece('{"x": 1}')]])

    async def call(state):
        async def answer(model):
            whole = None
            async for chunk in model.astream(state["messages"]):
                whole = chunk if whole is None else whole + chunk
                await asyncio.sleep(0)
            return whole

        first, second = await asyncio.gather(answer(cut), answer(whole))
        return {"messages": [first, second]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", call)
    builder.add_edge(START, "model")
    result = await with_patching(builder.compile()).ainvoke({"messages": [HumanMessage("go")]})
    _, first, second = result["messages"]
    assert not first.tool_calls
    assert first.invalid_tool_calls[0]["args"] == '{"amount": 30'
    assert second.tool_calls[0]["args"] == {"x": 1}


# --- the judgement ---------------------------------------------------------------------------


def judged(*chunks: AIMessageChunk, failed: bool = False) -> AIMessageChunk:
    """The message of a stream, as LangChain merges it, corrected."""
    calls = StreamedCalls()
    for chunk in chunks:
        calls.add(chunk)
    message = chunks[0].model_copy(deep=True)
    for chunk in chunks[1:]:
        message += chunk
    refuse_truncated(message, calls.calls(failed=failed))
    return message


COMPLETE_STREAMS = {
    "no reason": [begin("f", "c1"), piece('{"a": '), piece("1}")],
    "a reason that is not known": [begin("f", "c1"), piece('{"a": 1}'), reason("whatever")],
    "the limit, reached behind the call": [begin("f", "c1"), piece('{"a": 1}'), reason("length")],
    "no arguments, no reason": [begin("f", "c1")],
    "no arguments, an unknown reason": [begin("f", "c1"), reason("finished")],
    "no arguments, then another call": [
        begin("f", "c1"),
        begin("g", "c2", index=1),
        piece('{"a": 1}', 1),
        reason("length"),
    ],
    "an empty object": [begin("f", "c1", "{}"), reason("length")],
    "two calls, one index": [begin("f", "c1", '{"a": 1}'), begin("g", "c2", '{"b": 2}')],
    "one id twice": [begin("f", "c0", '{"a": 1}'), begin("f", "c0", '{"a": 2}', index=1)],
    "no index": [begin("f", "c1", '{"a": 1}', index=None), begin("g", "c2", "{}", index=None)],
    "no id": [piece('{"a": 1}', name="f")],
    "pieces in turns": [
        begin("f", "c1"),
        begin("g", "c2", index=1),
        piece('{"a"'),
        piece('{"b"', 1),
        piece(": 1}"),
        piece(": 2}", 1),
    ],
    "raw newlines": [begin("f", "c1", '{"a": "x\ny"}')],
}


@pytest.mark.parametrize("name", COMPLETE_STREAMS)
def test_a_complete_call_is_never_refused(name):
    """A complete call is never refused."""
    chunks = COMPLETE_STREAMS[name]
    message = judged(*chunks)
    assert not message.invalid_tool_calls
    assert len(message.tool_calls) == sum(
        c["name"] is not None for k in chunks for c in k.tool_call_chunks
    )


def test_every_cut_is_seen():
    """Wherever the text of the arguments ends."""
    text = '{"city": "Zürich", "days": [1, {"x": "\\"}"}]}'
    for end in range(len(text)):
        message = judged(begin("f", "c1"), piece(text[:end] or None), reason("max_tokens"))
        assert not message.tool_calls
        assert message.invalid_tool_calls[0]["args"] in (text[:end], None)


def test_empty_arguments_of_the_last_call():
    """Empty arguments of the last call."""
    assert not judged(begin("f", "c1"), reason("length")).tool_calls
    assert not judged(begin("f", "c1"), failed=True).tool_calls
    assert judged(begin("f", "c1")).tool_calls


def test_one_id_for_a_complete_and_a_truncated_call():
    """One id for a complete and a truncated call."""
    message = judged(begin("f", "c0", '{"a": 1}'), begin("f", "c0", '{"a": 2', index=1))
    assert [call["args"] for call in message.tool_calls] == [{"a": 1}]
    assert [call["args"] for call in message.invalid_tool_calls] == ['{"a": 2']


def test_chunks_that_were_not_reported_refuse_nothing():
    """Some integrations report texts only: what they made of the call is kept."""
    calls = StreamedCalls()
    calls.add(begin("f", "c1", '{"a": '))
    message = AIMessage("", tool_calls=[{"name": "f", "args": {"a": 1, "b": 2}, "id": "c1"}])
    assert not refuse_truncated(message, calls.calls())
    assert message.tool_calls


def test_all_copies_of_a_truncated_call_are_corrected():
    """All copies of a truncated call are corrected."""
    calls = StreamedCalls()
    calls.add(begin("f", "c1", '{"a": 1'))
    message = AIMessage(
        [
            {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}, "partial_json": "{"},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1'},
            {"type": "text", "text": "x"},
        ],
        tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c1"}],
        additional_kwargs={"tool_calls": [{"id": "c1"}, {"id": "c2"}]},
    )
    assert refuse_truncated(message, calls.calls())
    assert message.content == [
        {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "text", "text": "x"},
    ]
    assert message.additional_kwargs == {"tool_calls": [{"id": "c2"}]}
    assert (message.tool_calls, len(message.invalid_tool_calls)) == ([], 1)
