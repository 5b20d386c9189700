"""The integrations of providers: a call that was cut off does not run, and the thread goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage

from kit import KINDS, Agent
from langgraph_patch import validate_messages
from support.truncating_servers import PROVIDERS, Answer

COMPLETE = ("mail", '{"to": "al"}')
CUT = ("mail", '{"to": "bo')
MALFORMED = ("mail", '{"to": "bo",,}')
OBJECTS = ("anthropic", "bedrock", "gemini")
"""Providers whose arguments are objects if they are not streamed; Gemini's are in streams too."""
WAYS = ("invoke", "stream", "v3")
QUIET = pytest.mark.filterwarnings(
    "ignore::langchain_core._api.beta_decorator.LangChainBetaWarning"
)


def say(agent: Agent, text: str, way: str) -> None:
    """One turn, whose model is not streamed, is streamed, or is read as v3 events."""
    value = {"messages": [HumanMessage(text)]}
    if way != "v3":
        agent.stream(value, "values" if way == "invoke" else "messages")
    elif agent.asynchronous:
        asyncio.run(_events(agent, value))
    else:
        list(agent.graph.stream_events(value, agent.config, version="v3"))


async def _events(agent: Agent, value: Any) -> None:
    stream = await agent.graph.astream_events(value, agent.config, version="v3")
    async for _ in stream:
        pass


def agent_of(build: Any, server: Any, way: str, *, asynchronous: bool = False) -> Agent:
    """An agent with the model of a provider, which it binds to its tools."""
    model = server.model(streaming=way != "invoke")
    return Agent(
        lambda _, tools, saver: (
            build(model.bind_tools(tools), tools, saver)
            if build is KINDS["hand_built"]
            else build(model, tools, saver)
        ),
        asynchronous=asynchronous,
    )


BUILDS = ("hand_built", "create_agent", "middleware")
EVERY = [(name, way) for name in PROVIDERS for way in WAYS]


@QUIET
@pytest.mark.parametrize(
    ("name", "way", "kind", "asynchronous"),
    [(*row, BUILDS[(i + i // 3) % 3], bool(i % 2)) for i, row in enumerate(EVERY)],
)
def test_no_unfinished_call_runs(name, way, kind, asynchronous):
    """Behind a complete call, alone at the limit, in a dead stream, malformed: asked again."""
    is_raw = name not in OBJECTS or (way != "invoke" and name != "gemini")
    turns = [Answer([COMPLETE, CUT], "limit"), Answer([CUT], "limit"), Answer()]
    if is_raw and way != "invoke" and name != "bedrock":  # whose integration raises an error
        turns.append(Answer([CUT], "dead"))
    if is_raw or name == "gemini":
        turns.append(Answer([MALFORMED]) if is_raw else Answer(cut="malformed"))
    script = [answer for said in turns for answer in [said, Answer()][: 1 + (not said.text)]]
    with PROVIDERS[name].serving(script) as server:
        agent = agent_of(KINDS[kind], server, way, asynchronous=asynchronous)
        for number in range(len(turns)):
            say(agent, f"go {number}", way)
            assert agent.history[-1].text == "done"
            assert agent.desk.did == {"mail al": 1}
        assert len(server.requests) == len(script)
    results = agent.results
    assert results.pop("c00") == "sent to al"
    assert all("was not run" in text or "has incomplete" in text for text in results.values())
    assert len(results) == sum(bool(said.calls) for said in turns)
    assert validate_messages(agent.history) == []


@pytest.mark.parametrize("way", WAYS[:2])
@pytest.mark.parametrize("name", PROVIDERS)
def test_a_bare_graph_runs_the_cut_call(name, way):
    """The judge of the test above. Arguments that are text are parsed strictly, not streamed."""
    bare = lambda model, tools, saver: create_agent(model, tools, checkpointer=saver)
    with PROVIDERS[name].serving([Answer([CUT], "limit")]) as server:
        agent = agent_of(bare, server, way)
        say(agent, "go", way)
    runs = name in OBJECTS or way == "stream"
    assert agent.desk.did == ({"mail bo": 1} if runs else {})


@QUIET
@pytest.mark.parametrize(("name", "way"), EVERY[::2])
def test_complete_calls_run(name, way):
    """Also at the limit, where their text is complete."""
    is_raw = name not in OBJECTS or (way != "invoke" and name != "gemini")
    script = [Answer([COMPLETE, COMPLETE], "limit" if is_raw else None)]
    with PROVIDERS[name].serving(script) as server:
        agent = agent_of(KINDS["create_agent"], server, way)
        say(agent, "go", way)
        assert len(server.requests) == 2
    assert agent.desk.did == {"mail al": 2}
    assert agent.history[-1].text == "done"
