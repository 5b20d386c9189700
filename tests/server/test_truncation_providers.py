"""The integrations of providers: a call that was cut off does not run, and the thread goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from kit import BARE, KINDS, Agent
from langgraph_patch import validate_messages
from support.provider_server import INTEGRATIONS, TURNS, WORDS, ProviderServer, Turn

COMPLETE = ("mail", '{"to": "al"}')
CUT = ("mail", '{"to": "bo"')
"""LangChain completes it."""
MALFORMED = ("mail", '{"to": "bo",,}')
LIMIT, BOTH = Turn(calls=[CUT], cut=True), Turn(calls=[COMPLETE, CUT], cut=True)
OPENAI = ("OpenAI Chat Completions", "OpenAI Responses")
NAMES = (*OPENAI, "DeepSeek", "Anthropic", "Bedrock", "Gemini")
BUILDS = ("hand_built", "create_agent", "middleware")
NO_CALL = {"content": {"role": "model", "parts": []}, "finishReason": "MALFORMED_FUNCTION_CALL"}
"""What Gemini sends instead of a call that it could not read."""


def agent_of(build: Any, server: ProviderServer, *, asynchronous: bool = False) -> Agent:
    """An agent with the model of a provider, which it binds to its tools."""
    model: Any = server.model

    def make(_: Any, tools: Any, saver: Any) -> Any:
        is_loop = build is KINDS["hand_built"]
        return build(model.bind_tools(tools) if is_loop else model, tools, saver)

    return Agent(make, asynchronous=asynchronous)


def unfinished(name: str) -> dict[str, Any]:
    """What a provider streams that has no call that can run."""
    if name == "Gemini":
        event = f"data: {json.dumps({'candidates': [NO_CALL]})}\n\n"
        return {"limit": LIMIT, "malformed": [event.encode()]}
    turns: dict[str, Any] = {"limit": LIMIT, "malformed": Turn(calls=[MALFORMED])}
    if name != "Bedrock":  # whose integration raises an error at a stream without an end
        turns["dead"] = INTEGRATIONS[name].events(LIMIT)[: -1 if name == OPENAI[1] else -2]
    return turns


@pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning")
@pytest.mark.parametrize("way", ["messages", "v3"])
@pytest.mark.parametrize("name", NAMES)
def test_no_unfinished_call_of_a_stream_runs(name, way):
    """Alone the model is asked again; a complete one before it runs. Bare, the cut call runs."""
    number = NAMES.index(name)

    def say(agent: Agent, text: str) -> None:
        value = {"messages": [HumanMessage(text)]}
        if way == "v3":
            list(agent.graph.stream_events(value, agent.config, version="v3"))
        else:
            agent.stream(value, way)

    for turn in [*unfinished(name).values(), BOTH, Turn(calls=[COMPLETE], cut=name != "Gemini")]:
        with ProviderServer(INTEGRATIONS[name], turn, TURNS["text"]) as server:
            build = KINDS[BUILDS[number % 3]]
            agent = agent_of(build, server, asynchronous=way == "messages" and number > 2)
            for text in ("go", "hello"):
                say(agent, text)
                assert agent.history[-1].text == "".join(WORDS)
            runs = isinstance(turn, Turn) and COMPLETE in turn.calls
            assert agent.desk.did == ({"mail al": 1} if runs else {})
            assert server.refused == [[], [], []]
        assert validate_messages(agent.history) == []
    with ProviderServer(INTEGRATIONS[name], LIMIT, TURNS["text"]) as server:
        bare = agent_of(BARE["create_agent"], server)
        bare.stream({"messages": [HumanMessage("go")]}, "messages")
    assert bare.desk.did == {"mail bo": 1}


ARGS = {"to": "bo"}
USE = {"type": "tool_use", "id": "c1", "name": "mail", "input": ARGS}
BODIES: dict[str, Any] = {
    "Anthropic": {
        "id": "m", "type": "message", "role": "assistant", "model": "m", "content": [USE],
        "stop_reason": "max_tokens", "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "Bedrock": {
        "output": {"message": {"role": "assistant", "content": [
            {"toolUse": {"toolUseId": "c1", "name": "mail", "input": ARGS}},
        ]}},
        "stopReason": "max_tokens", "metrics": {"latencyMs": 1},
        "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
    },
    "Gemini": {
        "candidates": [{"finishReason": "MAX_TOKENS", "content": {"role": "model", "parts": [
            {"functionCall": {"name": "mail", "args": ARGS}},
        ]}}],
    },
}  # fmt: skip
"""The answers of the providers that give arguments as objects, which nothing shows to be cut."""


@pytest.mark.parametrize("name", BODIES)
def test_a_call_at_the_limit_of_an_answer_that_is_not_streamed(name):
    """Its arguments look complete; patched, the model is asked again, once, and nothing runs."""
    with ProviderServer(INTEGRATIONS[name], [json.dumps(BODIES[name]).encode()]) as server:
        assert server.model.invoke("go").tool_calls[0]["args"] == ARGS
        agent = agent_of(KINDS["create_agent"], server)
        agent.say("go")
        assert len(server.requests) == 3
    assert agent.desk.did == {}
