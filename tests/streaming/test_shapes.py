"""Final answers of every kind of agent in every shape of stream, and of models that fail."""

from __future__ import annotations

from functools import partial

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk, RemoveMessage
from langgraph.graph import START, MessagesState, StateGraph

from langgraph_patch import with_patching
from langgraph_patch.errors import StreamError
from langgraph_patch.streaming import (
    RETRACTED_KEY,
    AdaptiveChecker,
    FinalAnswers,
    afinal_answers,
    final_answers,
    first_chunk_checker,
    full_stream_checker,
    live_checker,
)
from support.answer_agents import (
    EVENTS,
    INPUT,
    KINDS,
    RETRIES,
    SHAPES,
    SUNNY,
    agent_model,
    astream,
    broken,
    by_hand,
    left,
    stream,
    text,
    weather,
)
from support.chunk_model import ChunkModel

CHECKERS = {
    "first chunk": first_chunk_checker,
    "full stream": full_stream_checker,
    "live": live_checker,
    "adaptive": AdaptiveChecker(),
}
OPENAI = {"model_provider": "openai"}
EXPERIMENTAL = pytest.mark.filterwarnings("ignore:The v3 streaming protocol")


@pytest.mark.sample(5)
@EXPERIMENTAL
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("checker", ["full stream", "live"])
def test_every_kind_of_agent_in_every_shape(kind, shape, checker):
    """A client has the answers in the end, each once, and nothing else."""
    make, expected = KINDS[kind]
    assert left(list(stream(make(), shape, CHECKERS[checker]))) == expected


@pytest.mark.sample(5)
@EXPERIMENTAL
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [*SHAPES, EVENTS])
@pytest.mark.parametrize("checker", ["full stream", "live"])
async def test_every_kind_of_agent_in_every_async_shape(kind, shape, checker):
    """The same of `astream` and `astream_events`."""
    make, expected = KINDS[kind]
    found = [pair async for pair in astream(make(), shape, CHECKERS[checker])]
    assert left(found) == expected


@pytest.mark.sample(3)
@EXPERIMENTAL
@pytest.mark.parametrize("name", RETRIES)
@pytest.mark.parametrize("checker", CHECKERS)
async def test_a_failed_attempt_is_never_part_of_an_answer(name, checker):
    """Five mechanisms that call a model again: the answer, once; early text is retracted."""
    for shape in (*SHAPES, EVENTS):
        runs = [[pair async for pair in astream(RETRIES[name](), shape, CHECKERS[checker])]]
        if shape != EVENTS:
            runs.append(list(stream(RETRIES[name](), shape, CHECKERS[checker])))
        for pairs in runs:
            assert left(pairs) == ["Sunny today."]
            reasons = [m[RETRACTED_KEY] for t, m in pairs if isinstance(t, RemoveMessage)]
            is_early = checker in ("first chunk", "live")
            assert reasons == (["failed_attempt"] if is_early else [])


@EXPERIMENTAL
@pytest.mark.parametrize("shape", [*SHAPES, EVENTS])
async def test_what_a_failed_run_had_written_comes_before_its_error(shape):
    """The text is held by the checker, and delivered once the run fails."""

    def failing():
        return by_hand(ChunkModel(turns=[broken()]))

    pairs = astream(failing(), shape, full_stream_checker)
    token, _ = await anext(pairs)
    with pytest.raises(ConnectionError, match="reset by peer"):
        await anext(pairs)
    assert token.text == "So"
    if shape != EVENTS:
        answers = stream(failing(), shape, full_stream_checker)
        assert next(answers)[0].text == "So"
        with pytest.raises(ConnectionError, match="reset by peer"):
            next(answers)


@EXPERIMENTAL
@pytest.mark.parametrize("shape", SHAPES)
def test_what_models_write_inside_tools_is_shown_on_request(shape):
    """`internal=True`, in every shape."""
    make, expected = KINDS["a model in a tool"]
    assert left(list(stream(make(), shape, live_checker, internal=True))) == [
        "inner Rome",
        *expected,
    ]


def test_other_modes_pass_unchanged_and_in_their_place():
    """The items that are no tokens are the very items that LangGraph streams."""
    make, _ = KINDS["create_agent"]
    items = []

    def recorded():
        for item in make().stream(INPUT, stream_mode=["messages", "updates", "custom"]):
            items.append(item)
            yield item

    shown = list(final_answers(recorded(), checker=live_checker, other_modes=True))
    others = [item for item in shown if item[0] == "updates"]
    assert others == [item for item in items if item[0] == "updates"]
    assert len(others) == 3
    assert left([item for item in shown if item[0] != "updates"]) == ["Sunny today."]
    last_token = max(n for n, item in enumerate(shown) if item[0] != "updates")
    assert shown.index(others[-1]) > last_token > shown.index(others[-2])


async def test_other_events_pass_unchanged():
    """`astream_events`: everything but the model's chunks, on request."""
    make, _ = KINDS["create_agent"]
    events = afinal_answers(
        make().astream_events(INPUT, version="v2"), checker=full_stream_checker, other_modes=True
    )
    shown = [item async for item in events]
    names = {item["event"] for item in shown if isinstance(item, dict)}
    assert {"on_chat_model_start", "on_tool_end", "on_chain_stream"} <= names
    assert "on_chat_model_stream" not in names


async def test_models_tagged_nostream_stay_out_of_events():
    """LangGraph's message stream leaves them out, too."""
    model = ChunkModel(turns=[text("hid", "den")] * 2).with_config(tags=["nostream"])
    graph = by_hand(model)
    events = afinal_answers(graph.astream_events(INPUT, version="v2"), checker=live_checker)
    from_events = [token.text async for token, _ in events]
    messages = final_answers(graph.stream(INPUT, stream_mode="messages"), checker=live_checker)
    assert from_events == [token.text for token, _ in messages] == ["hidden"]


@EXPERIMENTAL
def test_the_transformer_is_an_argument_of_compile_and_keeps_to_its_graph():
    """Compiled into a graph, it gives each run of it a projection, and each subgraph its own."""
    inner = StateGraph(MessagesState)
    model = ChunkModel(turns=[text("Sunny.")])
    inner.add_node("agent", lambda s: {"messages": [model.invoke(s["messages"])]})
    inner.add_edge(START, "agent")
    builder = StateGraph(MessagesState)
    builder.add_node("helper", inner.compile())
    builder.add_edge(START, "helper")
    graph = builder.compile(transformers=[FinalAnswers])
    run = graph.stream_events(INPUT, version="v3")
    found = []
    for handle in run.subgraphs:
        found += [t.text for t, _ in handle.extensions["answers"]]
    assert "".join(found) == "Sunny."
    model.received.clear()
    run = graph.stream_events(INPUT, version="v3")
    assert left(list(run.extensions["answers"])) == ["Sunny."]


@EXPERIMENTAL
@pytest.mark.parametrize("wrap", [lambda graph: graph, with_patching], ids=["bare", "patched"])
@pytest.mark.parametrize("checker", [full_stream_checker, live_checker])
def test_a_checker_is_one_argument_of_an_agent(wrap, checker):
    """`create_agent(transformers=...)`; `with_patching` keeps it."""
    transformer = partial(FinalAnswers, checker=checker)
    graph = wrap(create_agent(agent_model(), [weather], transformers=[transformer]))
    run = graph.stream_events(INPUT, version="v3")
    assert left(list(run.extensions["answers"])) == SUNNY
    assert len(run.output["messages"]) == 4


@EXPERIMENTAL
@pytest.mark.parametrize("checker", [full_stream_checker, live_checker])
def test_the_transformer_sees_a_call_that_came_whole_in_the_last_chunk(checker):
    """LangChain reports such a call as one finished block; the text before it is no answer."""
    call = {"name": "weather", "args": '{"city": "Rome"}', "id": "c1", "index": 0}
    last = AIMessageChunk("", tool_call_chunks=[call], chunk_position="last")
    graph = by_hand(ChunkModel(turns=[[AIMessageChunk("Let me see."), last], [text("Sunny.")[0]]]))
    run = graph.stream_events(
        INPUT, version="v3", transformers=[partial(FinalAnswers, checker=checker)]
    )
    assert left(list(run.extensions["answers"])) == ["Sunny."]


@EXPERIMENTAL
async def test_the_transformer_reads_reasoning_phases_and_calls_that_are_no_tool_calls():
    """Content block events become chunks on which checkers decide as on a model's own."""
    computer = {"type": "computer_call", "call_id": "c1", "action": {"type": "wait"}, "index": 1}
    reasoning = {"type": "reasoning", "reasoning": "hm", "index": 0}
    turn = [AIMessageChunk([reasoning]), AIMessageChunk([computer])]
    turn = [chunk.model_copy(update={"response_metadata": OPENAI}) for chunk in turn]
    run = await by_hand(ChunkModel(turns=[turn])).astream_events(
        INPUT, version="v3", transformers=[partial(FinalAnswers, checker=live_checker)]
    )
    shown = [pair async for pair in run.extensions["answers"]]
    assert [type(token) for token, _ in shown] == [AIMessageChunk, RemoveMessage]
    assert shown[0][0].content == [{"type": "reasoning", "reasoning": "hm"}]


def test_without_a_v3_stream_there_is_no_transformer(monkeypatch):
    """Before langgraph 1.2 `FinalAnswers` says so, and `final_answers` works."""
    monkeypatch.setattr("langgraph_patch.streaming.transformer.StreamChannel", None)
    for make in (FinalAnswers, partial(FinalAnswers, (), checker=live_checker)):
        with pytest.raises(StreamError, match=r"needs langgraph 1\.2 .* Use final_answers\."):
            make()
    graph = by_hand(ChunkModel(turns=[text("Sunny.")]))
    assert left(list(final_answers(graph.stream(INPUT, stream_mode="messages")))) == ["Sunny."]
