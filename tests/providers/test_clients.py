"""The real clients of OpenAI and Anthropic against servers that refuse a bad history."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_patch import validate_messages, with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware
from support.agents import Graph, Tools, history, human, react_v2, thread
from support.placeholder_texts import WAITED
from support.running import in_turn, pairs, run
from support.strict_servers import THINKING, Anthropic, Chat, Responses, StrictServer

BOOKED, NEVER_MIND = human("book it"), human("never mind")


def chat(url: str, *, streaming: bool) -> BaseChatModel:
    """Chat Completions."""
    return ChatOpenAI(
        model="gpt-4o", base_url=url, api_key="sk-fake", max_retries=0, streaming=streaming
    )


def responses(url: str, *, streaming: bool) -> BaseChatModel:
    """The Responses API."""
    return ChatOpenAI(
        model="gpt-5",
        base_url=url,
        api_key="sk-fake",
        max_retries=0,
        streaming=streaming,
        use_responses_api=True,
    )


def messages(url: str, *, streaming: bool) -> BaseChatModel:
    """Anthropic's Messages."""
    return ChatAnthropic(
        model="claude-sonnet-4-6",
        base_url=url,
        api_key="sk-fake",
        max_retries=0,
        streaming=streaming,
        max_tokens=2048,
        thinking={"type": "enabled", "budget_tokens": 1024},
    )


WIRES: dict[str, tuple[Callable[[], StrictServer], Callable[..., BaseChatModel], str]] = {
    "chat": (Chat, chat, "did not have response messages: c1, c2"),
    "responses": (Responses, responses, "No tool output found for function call c1."),
    "anthropic": (Anthropic, messages, "without `tool_result` blocks immediately after: c1, c2"),
}

each_wire = pytest.mark.parametrize("wire", WIRES)
streamed = pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def server(wire: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[StrictServer]:
    """The provider of the wire."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with WIRES[wire][0]() as server:
        yield server


def patched_agent(model: Any, tools: Any, **options: Any) -> Graph:
    """`create_agent`, patched."""
    return with_patching(create_agent(model, tools, **options))


def patched_react(model: Any, tools: Any, **options: Any) -> Graph:
    """`create_react_agent`, patched."""
    return with_patching(react_v2(model, tools, **options))


def with_middleware(model: Any, tools: Any, **options: Any) -> Graph:
    """`create_agent` with the middleware."""
    return create_agent(model, tools, middleware=[PatchToolCallsMiddleware()], **options)


@pytest.mark.parametrize(
    ("wire", "streaming", "asynchronous"), in_turn(WIRES, [False, True], [False, True, True])
)
async def test_unpatched_it_is_refused(
    wire: str, server: StrictServer, *, streaming: bool, asynchronous: bool
):
    """A new message instead of an approval: status 400, now and at every later message."""
    _, client, words = WIRES[wire]
    model = client(server.url, streaming=streaming)
    tools = Tools(asynchronous=asynchronous)
    graph = create_agent(model, tools.tools(), checkpointer=InMemorySaver())
    await run(graph, BOOKED, asynchronous=asynchronous)
    for value in (NEVER_MIND, human("hello?")):
        with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)) as refused:
            await run(graph, value, asynchronous=asynchronous)
        assert words in str(refused.value)
    assert server.answers == [200, 400, 400]
    assert "sent to bob" not in json.dumps(server.requests)


@pytest.mark.parametrize(
    ("wire", "build", "streaming", "asynchronous"),
    pairs(WIRES, [patched_agent, patched_react, with_middleware], [False, True], [False, True]),
)
async def test_patched_the_conversation_goes_on(
    wire: str, server: StrictServer, build: Any, *, streaming: bool, asynchronous: bool
):
    """The provider accepts the request: it has the real result and a placeholder."""
    model = WIRES[wire][1](server.url, streaming=streaming)
    tools = Tools(asynchronous=asynchronous)
    graph = build(model, tools.tools(), checkpointer=InMemorySaver())
    await run(graph, BOOKED, asynchronous=asynchronous)
    for value in (NEVER_MIND, human("hello?")):
        await run(graph, value, asynchronous=asynchronous)
        assert history(graph, thread())[-1].text == f"re: {value.text}"
    assert server.answers == [200, 200, 200]
    for request in server.requests[1:]:
        sent = json.dumps(request)
        assert sent.count('"sent to bob"') == 1
        assert sent.count(WAITED.format("wire_money", "c2")) == 1
    assert validate_messages(history(graph, thread())) == []
    assert tools.done == ["mail to bob"]


@pytest.mark.parametrize("wire", ["anthropic"])
@streamed
def test_what_the_model_thought_is_sent_back(server: StrictServer, *, streaming: bool):
    """Thinking and its signature go through a repair byte by byte."""
    model = messages(server.url, streaming=streaming)
    graph = patched_agent(model, Tools().tools(), checkpointer=InMemorySaver())
    graph.invoke({"messages": [BOOKED]}, thread())
    graph.invoke({"messages": [NEVER_MIND]}, thread())
    assistant = server.requests[-1]["messages"][1]
    assert assistant["role"] == "assistant"
    assert assistant["content"][0] == THINKING
    assert [block["type"] for block in assistant["content"][1:]] == ["tool_use", "tool_use"]


@each_wire
def test_the_servers_refuse(wire: str, server: StrictServer):
    """The servers of this file refuse an orphan result and a result that comes twice."""
    orphan: Any
    twice: Any
    if wire == "anthropic":
        use = {"type": "tool_use", "id": "c1", "name": "t", "input": {}}
        texts = {"role": "assistant", "content": [THINKING, use]}
        result = {"type": "tool_result", "tool_use_id": "c1", "content": ""}
        orphan = {"messages": [{"role": "user", "content": [result]}]}
        answers = [{"role": "user", "content": [result, result]}]
        twice = {"messages": [{"role": "user", "content": "hi"}, texts, *answers]}
    elif wire == "responses":
        call = {"type": "function_call", "call_id": "c1", "name": "t", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "c1", "output": ""}
        orphan, twice = {"input": [output]}, {"input": [call, output, output]}
    else:
        call = {"id": "c1", "type": "function", "function": {"name": "t", "arguments": "{}"}}
        texts = {"role": "assistant", "content": "", "tool_calls": [call]}
        answer = {"role": "tool", "tool_call_id": "c1", "content": ""}
        orphan, twice = {"messages": [answer]}, {"messages": [texts, answer, answer]}
    for body in (orphan, twice):
        with pytest.raises(Exception, match=r"tool|Duplicate") as refused:
            server.check(body)
        assert type(refused.value).__name__ == "Refused"
