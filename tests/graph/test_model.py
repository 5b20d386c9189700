"""`patch_model`: the model reads a valid history wherever it is called, or an error says more."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain.chat_models import init_chat_model
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, trim_messages
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import create_react_agent
from langgraph_supervisor import create_supervisor
from pydantic import BaseModel

from kit import Agent, Desk, StrictModel, calls, loop, streamed
from langgraph_patch import patch_model
from langgraph_patch.errors import ModelError, OptionError
from langgraph_patch.graph.model import PatchedModel
from support.running import in_turn

BROKEN = [HumanMessage("go"), calls(("wire", {})), HumanMessage("never mind")]
REPAIRED = ["human", "ai", "tool", "human"]
CUT = streamed(("mail", '{"to": "bob", "x'), reason="length")


class Answer(BaseModel):
    """An answer with a type."""

    text: str


def react(model: Any, tools: Any, **options: Any) -> Any:
    """LangGraph's prebuilt agent."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="create_react_agent has been moved")
        return create_react_agent(model, tools, checkpointer=InMemorySaver(), **options)


def from_the_model(method: Any) -> Any:
    """An agent of one node, whose model is what `method` makes of the patched model."""

    def build(model: Any, tools: Any) -> Any:
        return loop(method(model, tools), tools).compile(checkpointer=InMemorySaver())

    return build


def in_an_entrypoint(model: Any, tools: Any) -> Any:
    """A loop in a function; it has no history but its input."""

    @entrypoint(checkpointer=InMemorySaver())
    def run(value: Any) -> Any:
        return {"messages": [*value["messages"], model.invoke(value["messages"])]}

    return run


def supervised(model: Any, tools: Any) -> Any:
    """A supervisor without workers' tools."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        worker = react(StrictModel(), tools, name="worker")
        return create_supervisor([worker], model=model).compile(checkpointer=InMemorySaver())


PLACES = {
    "create_agent": lambda model, tools: create_agent(model, tools, checkpointer=InMemorySaver()),
    "bind_tools": from_the_model(lambda model, tools: model.bind_tools(tools)),
    "retries": from_the_model(lambda model, tools: model.bind_tools(tools).with_retry()),
    "fallbacks": from_the_model(lambda model, _: model.with_fallbacks([StrictModel()])),
    "with_config": from_the_model(lambda model, _: model.with_config(tags=["t"]).bind(stop=["x"])),
    "@entrypoint": in_an_entrypoint,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "asynchronous"), in_turn(PLACES, [False, True]))
async def test_it_works_in(name, asynchronous):
    """The model reads a valid history, and the answer is stored."""
    model = StrictModel()
    graph = PLACES[name](patch_model(model), Desk().tools())
    config = {"configurable": {"thread_id": "1"}}
    if asynchronous:
        result = await graph.ainvoke({"messages": BROKEN}, config)
    else:
        result = graph.invoke({"messages": BROKEN}, config)
    assert result["messages"][-1].text == "done"
    assert [m.type for m in model.seen[-1] if m.type != "system"] == REPAIRED


CHECKED = {
    "create_react_agent": react,
    "create_react_agent with bound tools": lambda model, t: react(model.bind_tools(t), t),
    "supervisor": supervised,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CHECKED)
def test_an_agent_that_validates_the_history_itself(name):
    """`create_react_agent` refuses the history before its model sees it: use `with_patching`."""
    graph = CHECKED[name](patch_model(StrictModel()), Desk().tools())
    config = {"configurable": {"thread_id": "1"}}
    healthy = graph.invoke({"messages": [HumanMessage("go")]}, config)
    assert healthy["messages"][-1].text == "done"
    with pytest.raises(ValueError, match="INVALID_CHAT_HISTORY"):
        graph.invoke({"messages": BROKEN}, config)


def test_structured_output_is_typed():
    """What parses the answer comes after the model."""

    class Model(StrictModel):
        def with_structured_output(self, schema: Any, **_: Any) -> Any:
            return self | RunnableLambda(lambda message: schema(text=message.text))

    model = Model()
    answer = patch_model(model).with_structured_output(Answer).invoke(BROKEN)
    assert answer == Answer(text="done")
    assert [m.type for m in model.seen[0]] == REPAIRED
    whole = patch_model(model.with_structured_output(Answer))
    assert whole.invoke(BROKEN) == Answer(text="done")


def test_a_model_that_is_made_at_each_call():
    """`init_chat_model` without a model makes one when it is called."""
    patched = patch_model(init_chat_model(configurable_fields=("model",)))
    assert isinstance(patched, PatchedModel)
    assert isinstance(patched.bind_tools([]), PatchedModel)


NO_ATTRIBUTE = "is no chat model. Take it from the model itself; if an agent asks for it, give"


def test_an_agent_that_needs_a_chat_model_says_so():
    """`SummarizationMiddleware` and deepagents read attributes of the model."""
    with pytest.raises(ModelError, match=NO_ATTRIBUTE):
        SummarizationMiddleware(patch_model(StrictModel()))
    with pytest.raises(ModelError, match=NO_ATTRIBUTE):
        create_deep_agent(patch_model(StrictModel()))
    graph = react(patch_model(StrictModel()), [], response_format=Answer)
    with pytest.raises(TypeError, match="ChatModel"):
        graph.invoke({"messages": BROKEN[:1]}, {"configurable": {"thread_id": "1"}})


def test_an_attribute_that_only_a_chat_model_has():
    """The error is an `AttributeError`, so that `hasattr` and `getattr` with a default work."""
    patched = patch_model(StrictModel())
    assert not hasattr(patched, "model_name")
    assert getattr(patched, "profile", None) is None
    with pytest.raises(AttributeError, match="no attribute 'generate'"):
        patched.generate([BROKEN])


@pytest.mark.parametrize(
    "value",
    [7, "gpt", RunnableLambda(lambda x: x), None],
    ids=["number", "name", "function", "None"],
)
def test_what_is_no_model_is_refused(value):
    """The error names the value and what was expected."""
    with pytest.raises(OptionError, match="expected a chat model"):
        patch_model(value)


def test_a_sequence_that_begins_with_a_prompt_is_refused():
    """Its input is no history: the model in it is to be patched."""
    prompt = ChatPromptTemplate.from_messages([("placeholder", "{messages}")])
    with pytest.raises(OptionError, match=r"prompt \| patch_model\(model\)"):
        patch_model(prompt | FakeListChatModel(responses=["x"]))
    model = StrictModel()
    (prompt | patch_model(model)).invoke({"messages": BROKEN})
    assert [m.type for m in model.seen[0]] == REPAIRED


def test_patching_twice_changes_nothing():
    """The model is repaired for once."""
    patched = patch_model(StrictModel())
    assert patch_model(patched) is patched


def test_a_valid_history_and_a_text_are_passed_on_as_they_are():
    """No copy is made."""
    received = []

    class Model(StrictModel):
        def invoke(self, input, *args, **kwargs):
            received.append(input)
            return super().invoke(input, *args, **kwargs)

    history = [HumanMessage("go")]
    for value in (history, "go"):
        patch_model(Model()).invoke(value)
    assert received[0] is history
    assert received[1] == "go"


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_a_stream_reads_a_valid_history(asynchronous):
    """Its chunks are those of the model."""
    model = StrictModel()
    patched = patch_model(model)
    if asynchronous:
        chunks = [chunk async for chunk in patched.astream(BROKEN)]
    else:
        chunks = list(patched.stream(BROKEN))
    assert "".join(chunk.text for chunk in chunks) == "done"
    assert [m.type for m in model.seen[0]] == REPAIRED


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_a_cut_call_is_left_in_invalid_tool_calls(asynchronous):
    """LangChain alone would complete it. The model is asked twice; the next call reads of it."""
    model = StrictModel(script=[CUT, CUT], streaming=True)
    patched = patch_model(model)
    question = [HumanMessage("go")]
    answer = await patched.ainvoke(question) if asynchronous else patched.invoke(question)
    assert not answer.tool_calls
    assert [call["id"] for call in answer.invalid_tool_calls] == ["c1"]
    patched.invoke([*question, answer])
    assert [len(history) for history in model.seen] == [1, 3, 3]
    assert "was not run" in model.seen[1][-1].text
    assert "was not run" in model.seen[2][-1].text


def test_it_adds_no_run_to_traces():
    """The only run is that of the model."""
    started = []

    class Handler(BaseCallbackHandler):
        def on_chain_start(self, *_, **options):
            started.append(("chain", options["name"]))

        def on_chat_model_start(self, *_, **__):
            started.append(("model", ""))

    patch_model(StrictModel()).invoke(BROKEN, {"callbacks": [Handler()]})
    assert started == [("model", "")]


def test_recorded_results_are_recovered_in_a_node_that_trims():
    """A window that cuts off a call, and the result of a call beside a pause."""
    model = StrictModel(script=[calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}))])
    patched = patch_model(model)

    def build(_model: Any, tools: Any, saver: Any) -> Any:
        def call(state: Any) -> Any:
            window = trim_messages(
                state["messages"], strategy="last", token_counter=len, max_tokens=3
            )
            return {"messages": [patched.invoke(window)]}

        bare = create_agent(model, tools)
        builder = StateGraph(MessagesState)
        for name, spec in bare.builder.nodes.items():
            builder.add_node(name, call if name == "model" else spec.runnable)
        builder.edges, builder.branches = bare.builder.edges, bare.builder.branches
        return builder.compile(checkpointer=saver)

    agent = Agent(build)
    agent.say("pay")
    agent.say("never mind")
    read = {m.tool_call_id: m.text for m in model.seen[-1] if isinstance(m, ToolMessage)}
    assert read["c1"] == "sent to bob"
    assert "waiting for human input" in read["c2"]
    agent.run({"messages": [AIMessage("x"), HumanMessage("and now?")]})
    assert [m.type for m in model.seen[-1]] == ["ai", "ai", "human"]


def test_an_option_with_a_wrong_value():
    """It is refused before a model is called."""
    with pytest.raises(OptionError, match="recover='always'"):
        patch_model(StrictModel(), recover="always")
