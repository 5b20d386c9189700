"""A patched model is the model that it was, but for its input and its truncated calls."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.chat_models import init_chat_model
from langchain_anthropic import ChatAnthropic
from langchain_core.caches import InMemoryCache
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnableParallel
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Send, interrupt
from pydantic import BaseModel

from langgraph_patch import PatchError, is_placeholder, patch_model
from langgraph_patch.history.tool_calls import complete_args
from langgraph_patch.history.truncated_calls import breaking_suffix, completed_args
from support.chunk_model import ChunkModel, begin, piece, reason
from support.strict_servers import THINKING
from support.truncating_servers import TRUNCATED, WIRES

BROKEN = [
    HumanMessage("go"),
    AIMessage("", tool_calls=[{"name": "wire", "args": {}, "id": "c1"}]),
    HumanMessage("never mind"),
]
KINDS = ["human", "ai", "tool", "human"]

WRAPPED = {
    "the model": lambda model: model,
    "with_config": lambda model: model.with_config(tags=["x"]),
    "bind": lambda model: model.bind(stop=["x"]),
    "bind_tools": lambda model: model.bind_tools([wire]),
    "with_retry": lambda model: model.with_retry(),
    "with_retry of bind_tools": lambda model: model.bind_tools([wire]).with_retry(),
    "with_fallbacks": lambda model: RunnableLambda(fails).with_fallbacks([model]),
    "the fallbacks of": lambda model: model.with_fallbacks([ChunkModel()]),
    "in parallel": lambda model: RunnableParallel(answer=model) | (lambda got: got["answer"]),
}


@tool
def wire(amount: int = 0) -> str:
    """Wire money."""
    return f"wired {amount}"


def fails(_):
    """Raise an error."""
    raise ValueError("no")


@pytest.mark.parametrize("name", WRAPPED)
async def test_the_input_is_repaired_whatever_wraps_the_model(name):
    """The input is repaired whatever wraps the model."""
    model = ChunkModel()
    wrapped = WRAPPED[name](model)
    patched = patch_model(wrapped)
    assert type(patched).__name__ == type(wrapped).__name__
    patched.invoke(BROKEN)
    await patched.ainvoke(BROKEN)
    list(patched.stream(BROKEN))
    [_ async for _ in patched.astream(BROKEN)]
    assert [[m.type for m in received] for received in model.received] == [KINDS] * 4
    wrapped.invoke(BROKEN)
    assert len(model.received[-1]) == 3  # what it was made of is as it was


def test_a_sequence_keeps_its_prompt():
    """A sequence keeps its prompt."""
    model = ChunkModel()
    prompt = ChatPromptTemplate.from_messages(
        [("system", "be brief"), ("placeholder", "{messages}")]
    )
    patch_model(prompt | model).invoke({"messages": BROKEN})
    assert [m.type for m in model.received[0]] == ["system", *KINDS]


class wire_money(BaseModel):  # noqa: N801 - the name of the tool that the servers call
    """Wire money."""

    amount: int


def with_tools(model):
    """Bedrock sends tool messages only beside tools."""
    return model.bind_tools([wire])


def structured(model):
    """By a forced tool call: OpenAI's default method reads a text."""
    options = {"method": "function_calling"} if isinstance(model, ChatOpenAI) else {}
    return model.with_structured_output(wire_money, include_raw=True, **options)


ON_WIRES = {
    "bind_tools": with_tools,
    "with_config": lambda model: with_tools(model).with_config(tags=["x"]),
    "with_retry": lambda model: with_tools(model).with_retry(
        stop_after_attempt=2, wait_exponential_jitter=False
    ),
    "with_fallbacks": lambda model: with_tools(model).with_fallbacks([with_tools(model)]),
    "with_structured_output": structured,
}


def model_of(server):
    """The integration; Anthropic's forces a tool call only if it does not think."""
    if isinstance(server, WIRES["anthropic"]):
        return server.model.model_copy(update={"thinking": None, "model": "claude-haiku-4-5"})
    return server.model


@pytest.mark.sample(4)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", ON_WIRES)
async def test_providers_accept_what_each_runnable_of_a_patched_model_sends(
    wire, name, monkeypatch
):
    """Bare, the provider refuses the history; patched before or after wrapping, it accepts it."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    wrap = ON_WIRES[name]
    thinking = [THINKING] if wire == "anthropic" else ""  # its server wants it back
    broken = [BROKEN[0], BROKEN[1].model_copy(update={"content": thinking}), BROKEN[2]]
    with WIRES[wire]() as server:
        model = model_of(server)
        with pytest.raises(Exception, match="c1"):
            wrap(model).invoke(broken)
        assert set(server.answers) == {400}
        for patched in (patch_model(wrap(model)), wrap(patch_model(model))):
            server.answers.clear()
            patched.invoke(broken)
            await patched.ainvoke(broken)
            list(patched.stream(broken))
            [_ async for _ in patched.astream(broken)]
            assert server.answers == [200] * 4


@pytest.mark.sample(4)
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", ON_WIRES)
def test_no_runnable_of_a_patched_model_completes_a_truncated_call(wire, name, monkeypatch):
    """The bare runnable returns the call with invented arguments; the patched one does not."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    wrap = ON_WIRES[name]

    def called(made):
        with WIRES[wire]() as server:
            server.calls = (TRUNCATED,)
            found = made(model_of(server)).invoke([HumanMessage("book it")])
        message = found["raw"] if isinstance(found, dict) else found
        if isinstance(found, dict):
            assert (found["parsed"] is not None) == bool(message.tool_calls)
        return [call["args"] for call in message.tool_calls]

    assert called(wrap) == [{"amount": 30}]
    assert called(lambda model: patch_model(wrap(model))) == []
    assert called(lambda model: wrap(patch_model(model))) == []


def test_structured_output_is_still_typed():
    """A patched structured output returns an instance of the schema for a complete call."""
    with WIRES["anthropic"]() as server:
        server.calls, server.cut = (("c1", "wire_money", '{"amount": 3}'),), None
        made = patch_model(model_of(server).with_structured_output(wire_money))
        assert made.invoke("book it") == wire_money(amount=3)


def test_a_patched_model_is_an_instance_of_its_class():
    """A patched model is an instance of its class."""
    model = ChatAnthropic(model="claude-sonnet-4-6", api_key="k")
    patched = patch_model(model)
    assert isinstance(patched, ChatAnthropic)
    assert type(patched).__name__ == "ChatAnthropic"
    assert type(patched) is type(patch_model(ChatAnthropic(model="other", api_key="k")))
    assert type(model) is ChatAnthropic
    assert dumpd(patched) == dumpd(model)
    assert patched._get_ls_params() == model._get_ls_params()  # noqa: SLF001 - what LangChain calls
    assert patched._get_llm_string() == model._get_llm_string()  # noqa: SLF001 - what LangChain calls
    assert patched.model_dump() == model.model_dump()


@pytest.mark.parametrize("kind", [ChunkModel, FakeListChatModel, ChatAnthropic, ChatOpenAI])
def test_only_methods_of_the_class_itself_are_overridden(kind):
    """Only methods of the class itself are overridden."""
    model = kind.model_construct(responses=["x"])
    patched = type(patch_model(model))
    for name in ("_generate", "_agenerate", "_stream", "_astream"):
        inherited = getattr(kind, name) is getattr(BaseChatModel, name)
        assert (getattr(patched, name) is getattr(BaseChatModel, name)) is inherited


@pytest.mark.parametrize("name", WRAPPED)
def test_patching_twice_changes_nothing(name):
    """Patching twice changes nothing."""
    patched = patch_model(WRAPPED[name](ChunkModel()))
    assert patch_model(patched) is patched


@pytest.mark.parametrize("remake", [copy.copy, copy.deepcopy, lambda m: m.model_copy()])
def test_a_copy_is_patched(remake):
    """A copy is patched."""
    patched = patch_model(ChunkModel(), placeholder="never ran")
    made = remake(patched)
    made.invoke(BROKEN)
    assert made.received[-1][2].content == "never ran"


def test_a_pickled_model_is_patched():
    """A pickled model is patched."""
    made = pickle.loads(pickle.dumps(patch_model(ChunkModel(), placeholder="never ran")))  # noqa: S301 - its own bytes
    made.invoke(BROKEN)
    assert made.received[-1][2].content == "never ran"
    assert type(made) is type(patch_model(ChunkModel()))


def test_a_configurable_model_is_refused():
    """A configurable model is refused."""
    with pytest.raises(PatchError, match="init_chat_model"):
        patch_model(init_chat_model(configurable_fields=("model",)))


def test_configurable_fields_and_alternatives():
    """A model with configurable fields is made anew at each call: it repairs too."""
    seen = []

    class Noting(ChunkModel):
        """A copy of it is a new object, so it notes elsewhere what it received."""

        def _stream(self, messages, *args, **kwargs):
            seen.append([m.type for m in messages])
            yield from super()._stream(messages, *args, **kwargs)

    streams = ConfigurableField(id="streams")
    chosen = ConfigurableField(id="model")
    one, other = ChunkModel(), ChunkModel()
    fields = patch_model(Noting().configurable_fields(streaming=streams))
    fields.with_config(configurable={"streams": True}).invoke(BROKEN)
    list(fields.stream(BROKEN))
    assert seen == [KINDS] * 2
    choice = patch_model(one.configurable_alternatives(chosen, default_key="one", other=other))
    choice.with_config(configurable={"model": "other"}).invoke(BROKEN)
    assert [[m.type for m in received] for received in other.received] == [KINDS]


@pytest.mark.parametrize("value", ["gpt-4o", None, RunnableLambda(fails), ChatOpenAI])
def test_what_contains_no_model_is_refused(value):
    """What contains no model is refused."""
    with pytest.raises(PatchError, match="chat model"):
        patch_model(value)


def test_options():
    """Options."""
    seen = []
    model = ChunkModel()
    patched = patch_model(
        model, placeholder={"unknown": "who knows"}, on_patch=lambda p, c: seen.append((p, c))
    )
    patched.invoke(BROKEN)
    assert model.received[0][2].content == "who knows"
    assert len(seen) == 1
    patched.invoke([HumanMessage("hi")])
    assert len(seen) == 1
    with pytest.raises(PatchError):
        patch_model(model, language="xx")


def test_a_valid_history_is_passed_on_as_it_is():
    """A valid history is passed on as it is."""
    model = ChunkModel()
    history = [HumanMessage("hi")]
    patch_model(model)._generate(history)  # noqa: SLF001 - what LangChain calls
    assert model.received[0] is history


def test_a_cache_keeps_its_entries():
    """A cache keeps its entries."""
    model = ChunkModel(cache=InMemoryCache())
    model.invoke("hi")
    patch_model(model).invoke("hi")
    assert len(model.received) == 1


# --- truncated calls ---------------------------------------------------------------------------

CUT = [begin("wire", "c1"), piece('{"amount": 30')]


@pytest.mark.parametrize(
    "end", [[], [reason("length")], [AIMessageChunk("", chunk_position="last")]]
)
async def test_every_reader_of_a_stream_finds_the_call_invalid(end):
    """Every reader of a stream finds the call invalid."""

    def made():
        return patch_model(ChunkModel(turns=[[*CUT, *end]], streaming=True))

    read = [
        made().invoke("hi"),
        await made().ainvoke("hi"),
        sum_of(list(made().stream("hi"))),
        sum_of([chunk async for chunk in made().astream("hi")]),
    ]
    for message in read:
        assert message.tool_calls == []
        assert message.invalid_tool_calls[0]["id"] == "c1"
        assert message.invalid_tool_calls[0]["args"].startswith('{"amount": 30')


def sum_of(chunks):
    """Merge chunks."""
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return whole


def test_a_complete_stream_has_no_further_chunk():
    """A complete stream has no further chunk."""
    chunks = [*CUT, piece("00}"), reason("tool_calls")]
    model = ChunkModel(turns=[chunks, chunks])
    bare = [chunk.model_dump(exclude={"id"}) for chunk in model.stream("hi")]
    patched = [chunk.model_dump(exclude={"id"}) for chunk in patch_model(model).stream("hi")]
    assert bare == patched


def test_an_error_in_mid_stream_comes_after_the_mark():
    """An error in mid stream comes after the mark."""
    arrived = []
    with pytest.raises(OSError, match="reset"):  # noqa: PT012 - it is what is tested
        for chunk in patch_model(ChunkModel(turns=[[*CUT, OSError("reset")]])).stream("hi"):
            arrived.append(chunk)  # noqa: PERF402 - as above
    assert sum_of(arrived).tool_calls == []


def test_v1_content():
    """V1 content."""
    model = patch_model(ChunkModel(turns=[CUT], streaming=True, output_version="v1"))
    message = model.invoke("hi")
    assert message.tool_calls == []
    assert "tool_call" not in [block["type"] for block in message.content]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.booleans(),
)
def test_the_suffix_breaks_every_incomplete_text(value, ascii_only):
    """The suffix breaks every incomplete text."""
    text = json.dumps({"a": value}, ensure_ascii=ascii_only)
    for end in range(len(text)):
        raw = text[:end]
        assert complete_args(raw) is None or not raw
        broken = raw + breaking_suffix(raw)
        assert not isinstance(completed_args(broken), dict)
        assert complete_args(broken) is None


# --- in graphs -----------------------------------------------------------------------------------


def test_results_are_recovered_inside_a_graph():
    """A paused sibling is abandoned; the finished call's result is read from the checkpointer."""

    @tool
    def fast() -> str:
        """Finish."""
        return "real result"

    @tool
    def slow() -> str:
        """Wait."""
        return interrupt("ok?")

    calls = [{"name": n, "args": {}, "id": i} for n, i in (("fast", "c1"), ("slow", "c2"))]
    model = ChunkModel()
    patched = patch_model(model)

    def call(state):
        if len(state["messages"]) == 1:
            return {"messages": [AIMessage("", tool_calls=calls)]}
        return {"messages": [patched.invoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", call)
    builder.add_node("tools", ToolNode([fast, slow]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model",
        lambda s: [Send("tools", [c]) for c in getattr(s["messages"][-1], "tool_calls", [])],
    )
    builder.add_edge("tools", "model")
    graph = builder.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    graph.invoke({"messages": [HumanMessage("go")]}, config)
    graph.invoke({"messages": [HumanMessage("never mind")]}, config)
    results = [m for m in model.received[0] if isinstance(m, ToolMessage)]
    assert [m.content for m in results if not is_placeholder(m)] == ["real result"]
    assert [m.tool_call_id for m in results if is_placeholder(m)] == ["c2"]


@pytest.mark.parametrize("wire", WIRES)
def test_a_loop_asks_again_about_truncated_calls(wire, monkeypatch):
    """A loop that goes on while there are invalid calls asks once more, with a placeholder.

    The model alone asks once: the second answer belongs to a history that has the first.
    """
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with WIRES[wire]() as server:
        server.calls = (TRUNCATED,)
        model = patch_model(with_tools(server.model))
        history = [HumanMessage("book it")]
        history.append(model.invoke(history))
        assert len(server.requests) == 1
        for _ in range(2):
            if history[-1].tool_calls or history[-1].invalid_tool_calls:
                history.append(model.invoke(history))
        assert len(server.requests) == 2
        assert server.answers == [200, 200]
    assert history[-1].text == "done"
    assert "c2" in json.dumps(server.requests[1])


def test_in_an_entrypoint():
    """In an entrypoint."""
    model = ChunkModel(turns=[CUT], streaming=True)
    patched = patch_model(model)
    ran = []

    @task
    def use(call):
        ran.append(call)

    @entrypoint(checkpointer=InMemorySaver())
    def loop(messages, *, previous=None):
        history = [*(previous or []), *messages]
        answer = patched.invoke(history)
        for call in answer.tool_calls:
            use(call).result()
        return entrypoint.final(value=answer.text, save=[*history, answer])

    config = {"configurable": {"thread_id": "1"}}
    loop.invoke([HumanMessage("go")], config)
    assert loop.invoke([HumanMessage("hello?")], config) == "done"
    assert ran == []
    assert [m.type for m in model.received[1]] == KINDS
