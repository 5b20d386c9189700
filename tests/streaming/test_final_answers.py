"""Streams of real graphs: a client sees final answers only, live, and a cut stream is stored."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command

from langgraph_patch import with_patching
from langgraph_patch.history.patch import patch_messages, validate_messages
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.streaming import (
    AdaptiveChecker,
    ModelStats,
    afinal_answers,
    asplit_stream,
    final_answers,
    first_chunk_checker,
    full_stream_checker,
    live_checker,
    message_from_stream,
    split_stream,
)
from support.answer_agents import left

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

THREAD = {"configurable": {"thread_id": "1"}}


class Scripted(BaseChatModel):
    """A model that streams one script per turn and refuses a broken history, as a provider does.

    Attributes:
        turns: The chunks of each turn. A callable among them is called, an exception raised.
        seen: The histories that it read.
    """

    turns: list[list[Any]]
    seen: list[list[BaseMessage]] = []  # noqa: RUF012 - a field of pydantic

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _get_ls_params(self, **_: Any) -> Any:
        return {"ls_provider": "scripted", "ls_model_name": "one"}

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return generate_from_stream(self._stream(messages))

    def _script(self, messages: list[BaseMessage]) -> list[Any]:
        assert validate_messages(messages) == []
        self.seen.append(messages)
        return self.turns[len(self.seen) - 1]

    def bind_tools(self, _tools: Any, **_: Any) -> Any:
        return self

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[Any]:
        for item in self._script(messages):
            if isinstance(item, Exception):
                raise item
            if isinstance(item, AIMessageChunk):
                yield ChatGenerationChunk(message=item.model_copy())
            else:
                item()

    async def _astream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> AsyncIterator[Any]:
        for item in self._script(messages):
            if isinstance(item, AIMessageChunk):
                yield ChatGenerationChunk(message=item.model_copy())
            else:
                await item()


def text(*tokens: str) -> list[AIMessageChunk]:
    """Tokens of an answer."""
    return [AIMessageChunk(token) for token in tokens]


def call(id_: str, *args: str, index: int = 0, name: str = "weather") -> list[AIMessageChunk]:
    """The pieces of a call."""
    start = {"name": name, "args": "", "id": id_, "index": index}
    rest = [{"name": None, "args": piece, "id": None, "index": index} for piece in args]
    return [AIMessageChunk("", tool_call_chunks=[piece]) for piece in [start, *rest]]


@tool
def weather(city: str) -> str:
    """Say how the weather is."""
    return f"sunny in {city}"


def agent(model: BaseChatModel) -> Any:
    """An agent, written by hand: model, tools, model; the model reads a patched history."""

    def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(patch_messages(state["messages"]).messages)]}

    async def athink(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(patch_messages(state["messages"]).messages)]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", RunnableLambda(think, athink))
    builder.add_node("tools", ToolNode([weather]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    return builder.compile(checkpointer=InMemorySaver())


def ask(question: str) -> dict[str, Any]:
    """An input."""
    return {"messages": [HumanMessage(question)]}


def summary_of(message: BaseMessage) -> tuple[Any, ...]:
    """What a message says, without its random id."""
    if isinstance(message, ToolMessage):
        return "tool", message.tool_call_id, message.text
    if isinstance(message, AIMessage):
        calls = [(c["id"], c["args"]) for c in message.tool_calls]
        return "ai", message.text, calls, [(c["id"], c["args"]) for c in message.invalid_tool_calls]
    return message.type, message.text


# --- a client ---------------------------------------------------------------------------------


def test_a_client_sees_the_final_answer_while_the_model_is_still_writing():
    """The model does not go on before its first token was shown; the tool turn shows nothing."""
    shown = threading.Event()
    waits: list[bool] = []
    turns = [
        call("c1", '{"city": ', '"Rome"}'),
        [*text("Sunny"), lambda: waits.append(shown.wait(10)), *text(" in Rome.")],
    ]
    stream = agent(Scripted(turns=turns)).stream(ask("weather?"), THREAD, stream_mode="messages")
    tokens = []
    for token, metadata in final_answers(stream, checker=first_chunk_checker):
        tokens.append((token.text, metadata["langgraph_node"]))
        shown.set()
    assert waits == [True]
    assert tokens == [("Sunny", "agent"), (" in Rome.", "agent"), ("", "agent")]


async def test_an_async_client_sees_the_final_answer_while_the_model_is_still_writing():
    """The same over `astream`."""
    shown = asyncio.Event()
    waits: list[bool] = []

    async def wait() -> None:
        waits.append(await asyncio.wait_for(shown.wait(), 10))

    turns = [call("c1", '{"city": "Rome"}'), [*text("Sunny"), wait, *text(" in Rome.")]]
    stream = agent(Scripted(turns=turns)).astream(ask("weather?"), THREAD, stream_mode="messages")
    tokens = []
    async for token, _ in afinal_answers(stream, checker=first_chunk_checker):
        tokens.append(token.text)
        shown.set()
    assert waits == [True]
    assert tokens == ["Sunny", " in Rome.", ""]


def test_what_a_model_says_ahead_of_a_call_is_not_shown():
    """By default and with a full reading: a model that writes text first has not finished."""
    for options in ({}, {"checker": full_stream_checker}):
        turns = [[*text("Let me see."), *call("c1", '{"city": "Rome"}')], text("Sunny.")]
        graph = agent(Scripted(turns=turns, seen=[]))
        stream = graph.stream(ask("weather?"), THREAD, stream_mode="messages")
        assert [token.text for token, _ in final_answers(stream, **options)] == ["Sunny.", ""]


def test_a_graph_names_its_model_so_that_the_checker_learns():
    """Twenty turns with calls, and the next answer is decided by its first token."""
    checker = AdaptiveChecker()
    turns = [call(f"c{n}", '{"city": "Rome"}') for n in range(20)] + [text("Sunny", " there.")]
    stream = agent(Scripted(turns=turns)).stream(
        ask("weather?"), THREAD | {"recursion_limit": 50}, stream_mode="messages"
    )
    assert [t.text for t, _ in final_answers(stream, checker=checker)] == ["Sunny", " there.", ""]
    assert checker.stats() == {"scripted:one": ModelStats(21, 20, 1, 0, 21, 0, 20)}


def test_parallel_nodes_are_distinguished():
    """Two models at once: the one that calls shows nothing, the other one its whole answer."""
    caller = Scripted(turns=[[*text("Let me"), *call("c1", '{"city": "Rome"}')]], seen=[])
    speaker = Scripted(turns=[text(*"I speak meanwhile.")], seen=[])
    builder = StateGraph(MessagesState)
    for name, model in (("caller", caller), ("speaker", speaker)):
        builder.add_node(name, lambda s, m=model: {"messages": [m.invoke(s["messages"])]})
        builder.add_edge(START, name)
    stream = builder.compile().stream(ask("go"), stream_mode="messages")
    shown = [(metadata["langgraph_node"], token.text) for token, metadata in final_answers(stream)]
    assert shown == [("speaker", letter) for letter in [*"I speak meanwhile.", ""]]


@pytest.mark.parametrize("patched", ["with_patching", "the middleware"])
@pytest.mark.parametrize("checker", [full_stream_checker, live_checker])
def test_the_answer_of_a_repaired_turn(patched, checker):
    """A repair writes tool messages; none of them is an answer, and they retract nothing."""
    model = Scripted(turns=[[*text("Let me"), *call("c2", '{"city": "Rome"}')], text("Sunny.")])
    if patched == "with_patching":
        graph = with_patching(create_agent(model, [weather], checkpointer=InMemorySaver()))
    else:
        graph = create_agent(
            model,
            [weather],
            middleware=[PatchToolCallsMiddleware()],
            checkpointer=InMemorySaver(),
        )
    opened = AIMessage("", tool_calls=[{"name": "weather", "args": {}, "id": "c1"}], id="a1")
    graph.update_state(THREAD, {"messages": [HumanMessage("hi", id="h"), opened]}, as_node="model")
    shown = list(
        final_answers(graph.stream(ask("well?"), THREAD, stream_mode="messages"), checker=checker)
    )
    assert left(shown) == ["Sunny."]
    assert "c1" in [m.tool_call_id for m in model.seen[-1] if isinstance(m, ToolMessage)]


# --- a cut ------------------------------------------------------------------------------------

CUT = [*text("Let me see."), *call("c1", '{"city": "Rome"}'), *call("c2", '{"ci', index=1)]
AFTER_THE_CUT = [
    ("human", "weather?"),
    ("ai", "Let me see.", [("c1", {"city": "Rome"})], [("c2", '{"ci')]),
    ("human", "hello?"),
]


def stored(graph: Any, message: AIMessage) -> list[tuple[Any, ...]]:
    """Store the message as the agent's, ask again, and return what the thread then holds."""
    graph.update_state(THREAD, {"messages": [message]}, as_node="agent")
    # A call of a turn that was cut is not run behind the user's back.
    graph.update_state(THREAD, None, as_node=END)
    assert graph.get_state(THREAD).next == ()
    graph.invoke(ask("hello?"), THREAD)
    return [summary_of(message) for message in graph.get_state(THREAD).values["messages"]]


def answered(model: Scripted) -> list[tuple[Any, ...]]:
    """The tool messages of unanswered calls in the model's input."""
    return [summary_of(m)[:2] for m in model.seen[-1] if isinstance(m, ToolMessage)]


def test_a_stream_that_the_provider_cut_is_stored_and_the_thread_goes_on():
    """What arrived before the error is in the thread, the cut call is answered, nothing is run."""
    model = Scripted(turns=[[*CUT, ConnectionError("reset by peer")], text("Here I am.")], seen=[])
    graph = agent(model)
    stream = graph.stream(ask("weather?"), THREAD, stream_mode="messages")
    chunks = [next(stream)[0] for _ in CUT]
    with pytest.raises(ConnectionError, match="reset by peer"):
        next(stream)
    assert stored(graph, message_from_stream(chunks)) == [
        *AFTER_THE_CUT,
        ("ai", "Here I am.", [], []),
    ]
    assert answered(model) == [("tool", "c1"), ("tool", "c2")]


async def test_a_stream_that_the_client_left_is_stored_and_the_thread_goes_on():
    """The client goes away in the middle of the arguments; the model's run is cancelled."""

    async def forever() -> None:
        await asyncio.sleep(60)

    model = Scripted(turns=[[*CUT, forever], text("Here I am.")], seen=[])
    graph = agent(model)
    stream = graph.astream(ask("weather?"), THREAD, stream_mode="messages")
    chunks = [(await anext(stream))[0] for _ in CUT]
    await stream.aclose()
    after = await asyncio.to_thread(stored, graph, message_from_stream(chunks))
    assert after == [*AFTER_THE_CUT, ("ai", "Here I am.", [], [])]
    assert answered(model) == [("tool", "c1"), ("tool", "c2")]


# --- routing on the decision ------------------------------------------------------------------


def test_a_node_routes_on_the_decision():
    """`split_stream` in a node: a call goes to the tools, an answer live to the client."""
    model = Scripted(turns=[call("c1", '{"city": "Rome"}'), text("Sunny", ".")], seen=[])

    def think(state: MessagesState) -> Command[str]:
        calls_tools, chunks = split_stream(model.stream(state["messages"]))
        arrived = []
        for chunk in chunks:
            arrived.append(chunk)
            if not calls_tools:
                get_stream_writer()(chunk.text)
        update = {"messages": [message_from_stream(arrived)]}
        return Command(update=update, goto="tools" if calls_tools else END)

    builder = StateGraph(MessagesState)
    builder.add_node("agent", think, destinations=("tools", END))
    builder.add_node("tools", ToolNode([weather]))
    builder.add_edge(START, "agent")
    builder.add_edge("tools", "agent")
    graph = builder.compile(checkpointer=InMemorySaver())
    assert list(graph.stream(ask("weather?"), THREAD, stream_mode="custom")) == ["Sunny", ".", ""]
    assert [summary_of(message) for message in graph.get_state(THREAD).values["messages"]] == [
        ("human", "weather?"),
        ("ai", "", [("c1", {"city": "Rome"})], []),
        ("tool", "c1", "sunny in Rome"),
        ("ai", "Sunny.", [], []),
    ]


async def test_an_async_model_is_split_alike():
    """`asplit_stream` over `astream` of a real chat model."""
    model = Scripted(turns=[[*text("Let me see."), *call("c1", '{"city": "Rome"}')]], seen=[])
    calls_tools, chunks = await asplit_stream(model.astream("weather?"))
    message = message_from_stream([chunk async for chunk in chunks])
    assert calls_tools
    assert summary_of(message) == ("ai", "Let me see.", [("c1", {"city": "Rome"})], [])
