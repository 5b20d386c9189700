"""What the real integrations make of histories and streams, judged by their providers' rules."""

from __future__ import annotations

import copy
import json
import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.messages.ai import add_ai_message_chunks

from damaged import DAMAGED, FIRST
from kit import BARE, KINDS, Agent, above, model_node
from langgraph_patch.history.forms.plain import portable_messages
from langgraph_patch.history.patch import patch_messages, validate_messages
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from langgraph_patch.streaming import (
    RETRACTED_KEY,
    UNFINISHED_KEY,
    final_answers,
    first_chunk_checker,
    full_stream_checker,
    message_from_stream,
)
from support import wires
from support.provider_server import (
    INTEGRATIONS,
    THINKING,
    TURNS,
    WITH_BLOCKS,
    WORDS,
    Answer,
    Integration,
    ProviderServer,
    Turn,
)
from support.strategies import damaged_histories, fewer
from support.streams import INPUT, LAST, left, live, weather
from support.wires import WIRES, payload, refusals

BASES = list(dict.fromkeys(name.partition("@")[0] for name in DAMAGED))


def carrying(messages: list[Any]) -> tuple[str, ...]:
    """The wires that can carry a history: Anthropic's server-side tools are for Anthropic alone.

    Bedrock's integration raises at one, whole or cut.
    """
    has_search = any("server_tool" in str(message.content) for message in messages)
    return ("anthropic",) if has_search else WIRES


# --- what is sent of a damaged history ----------------------------------------------------------


@pytest.mark.parametrize("base", BASES)
def test_the_repair_is_taken_by_every_wire_at_the_first_request_or_the_second(base):
    """By whatever rule; which wires refuse it before is the table of `test_tables`."""
    for name in [name for name in DAMAGED if name.partition("@")[0] == base]:
        for portable, expected in ((False, FIRST[name]), (True, "......")):
            repaired = (portable_messages if portable else patch_messages)(DAMAGED[name]).messages
            found = {wire: refusals(wire, repaired, ours_only=False) for wire in WIRES}
            refused = "".join("-" if found[wire] else "." for wire in WIRES)
            assert refused == expected, (name, found)


@fewer(2)
@given(damaged_histories())
def test_valid_on_every_wire(broken):
    """The payload that each integration builds of the portable form obeys the provider's rules.

    Marks of placeholders stay in the thread.
    """
    repaired = portable_messages(broken).messages
    wires.assert_accepted(repaired, carrying(repaired))
    for wire in carrying(repaired):
        assert "langgraph_patch" not in repr(payload(wire, repaired))


# --- clients of providers that refuse a bad history -----------------------------------------------

BOOK = Turn(calls=[("mail", '{"to": "bob"}'), ("wire", '{"amount": 5}')])


def agent_with(build: Any, server: ProviderServer, *, asynchronous: bool = False) -> Agent:
    """An agent with the model of a provider, which it binds to its tools."""
    model: Any = server.model

    def make(_: Any, tools: Any, saver: Any) -> Any:
        is_loop = build in (KINDS["hand_built"], KINDS["recorded"])
        return build(model.bind_tools(tools) if is_loop else model, tools, saver)

    return Agent(make, asynchronous=asynchronous)


def talk(server: ProviderServer, build: Any, *, asynchronous: bool = False) -> Agent:
    """An agent that has sent its mail and waits for a human."""
    made = agent_with(build, server, asynchronous=asynchronous)
    made.stream({"messages": [HumanMessage("book it")]}, "messages")
    assert [each.value for each in made.interrupts] == ["wire 5?"]
    return made


@pytest.mark.parametrize("name", ["OpenAI Chat Completions", "Anthropic", "Bedrock"])
def test_unpatched_it_is_refused(name):
    """A new message instead of an approval: status 400, now and at every later message."""
    with ProviderServer(INTEGRATIONS[name], BOOK, TURNS["text"]) as server:
        agent = talk(server, BARE["create_agent"])
        for text in ("never mind", "hello?"):
            with pytest.raises(Exception, match="unanswered-call"):
                agent.stream({"messages": [HumanMessage(text)]}, "messages")
    assert [bool(broken) for broken in server.refused] == [False, True, True]


@pytest.mark.parametrize(
    ("name", "kind", "asynchronous"),
    [
        (name, ("create_agent", "recorded", "middleware")[place % 3], place % 2 == 1)
        for place, name in enumerate(INTEGRATIONS)
    ],
)
def test_patched_the_conversation_goes_on(name, kind, asynchronous):
    """The provider accepts the request: it has the real result and a placeholder."""
    with ProviderServer(INTEGRATIONS[name], BOOK, TURNS["text"]) as server:
        agent = talk(server, KINDS[kind], asynchronous=asynchronous)
        for text in ("never mind", "hello?"):
            agent.stream({"messages": [HumanMessage(text)]}, "messages")
            assert agent.history[-1].text == "".join(WORDS)
    assert server.refused == [[], [], []]
    for request in server.requests[1:]:
        sent = repr(request)
        assert sent.count("sent to bob") == 1
        assert len(re.findall("asked for human input", sent)) == 1
    assert validate_messages(agent.history) == []
    assert agent.desk.did == {"mail bob": 1}


def test_what_the_model_thought_is_sent_back():
    """Thinking and its signature go through a repair byte by byte."""
    with ProviderServer(INTEGRATIONS["Anthropic, thinking"], BOOK, TURNS["text"]) as server:
        talk(server, KINDS["create_agent"]).stream({"messages": [HumanMessage("no")]}, "messages")
    assistant = server.requests[-1][1]
    assert assistant["role"] == "assistant"
    assert assistant["content"][0] == THINKING


# --- what the integrations stream -----------------------------------------------------------------

STREAMS: dict[str, Integration] = {**INTEGRATIONS, **WITH_BLOCKS}
FINISHED = {"weather": {"city": "Rome"}, "now": {}}
"""The arguments of every call in the streams: nothing else may become a call."""


def streamed(server: ProviderServer) -> list[Any]:
    """The chunks of a turn, as the integration makes them; up to an error, if there is one."""
    chunks = []
    with suppress(Exception):  # some integrations raise at a broken stream, others end silently
        chunks.extend(server.model.bind_tools([weather]).stream("How is the weather?"))
    return chunks


def assert_goes_on(message: AIMessage, integration: Integration) -> None:
    """The message is stored, the human writes again, and the wires accept the history."""
    if not (message.content or message.tool_calls or message.invalid_tool_calls):
        return  # nothing had arrived, so there is nothing to store
    for each in message.tool_calls:
        assert each["args"] == FINISHED[each["name"]]
    asked = [HumanMessage("hi", id="1"), message, HumanMessage("well?", id="3")]
    patched = patch_messages(asked).messages
    results = [m for m in patched if isinstance(m, ToolMessage)]
    assert {m.tool_call_id: m.additional_kwargs[PLACEHOLDER_KEY]["cause"] for m in results} == {
        **{each["id"]: "unknown" for each in message.tool_calls},
        **{each["id"]: "malformed" for each in message.invalid_tool_calls},
    }
    assert validate_messages(patched) == []
    wires.assert_accepted(patched, carrying(patched))
    assert refusals(integration.wire, patched, ours_only=False) == []


def other_blocks(content: Any) -> list[Any]:
    """The blocks that are no calls; nothing of a text."""
    calls = {"tool_use", "function_call", "tool_call", "tool_call_chunk"}
    blocks = [block for block in content if isinstance(block, dict)]
    return [block for block in blocks if block["type"] not in calls]


@pytest.mark.parametrize("name", STREAMS)
def test_a_cut_behind_every_chunk_leaves_a_history_that_every_wire_accepts(name):
    """Only finished calls are calls, each is answered; no text and no block is lost."""
    with ProviderServer(STREAMS[name], TURNS["text, then a call"]) as server:
        chunks = streamed(server)
    before = copy.deepcopy(chunks)
    for cut in range(1, len(chunks) + 1):
        message = message_from_stream(chunks[:cut])
        assert_goes_on(message, STREAMS[name])
        # Copies, because LangChain rewrites streaming blocks in place once it sees "last".
        merged = add_ai_message_chunks(*copy.deepcopy(chunks[:cut]), LAST)
        assert (message.text, message.id) == (merged.text, merged.id)
        assert message.usage_metadata == merged.usage_metadata
        aside = message.additional_kwargs.get(UNFINISHED_KEY, [])
        assert other_blocks([*message.content, *aside]) == other_blocks(merged.content)
    assert chunks == before
    assert message.invalid_tool_calls == []
    assert {each["name"] for each in message.tool_calls} >= {"weather"}


@pytest.mark.parametrize("name", [name for name in INTEGRATIONS if name != "Gemini"])
def test_a_call_without_arguments_is_one_only_if_the_provider_says_that_the_model_ended(name):
    """The same stream, ended by the model or at the token limit."""
    for cut in (False, True):
        turn = Turn(calls=[("now", "")], cut=cut)
        with ProviderServer(INTEGRATIONS[name], turn) as server:
            message = message_from_stream(streamed(server))
        assert [each["args"] for each in message.tool_calls] == ([] if cut else [{}])
        assert len(message.invalid_tool_calls) == cut


CHECKERS = (full_stream_checker, first_chunk_checker, live)


@pytest.mark.parametrize(
    ("name", "turn"), [(name, turn) for name in STREAMS for turn in ("text", "text, then a call")]
)
def test_a_client_has_the_text_of_an_answer_and_nothing_else(name, turn):
    """Whatever the integration's chunks look like; only text before a call is retracted."""
    checker = CHECKERS[[*STREAMS].index(name) % len(CHECKERS)]
    with ProviderServer(STREAMS[name], TURNS[turn]) as server:
        graph = above(model_node(server.model.bind_tools([weather]))).compile()
        shown = list(final_answers(graph.stream(INPUT, stream_mode="messages"), checker=checker))
    has_call = bool(TURNS[turn].calls) or name.startswith("Anthropic, v")  # which calls `now`
    assert left(shown) == ([] if has_call else ["".join(WORDS)])
    reasons = [m[RETRACTED_KEY] for t, m in shown if isinstance(t, RemoveMessage)]
    assert reasons in ([], ["tool_call"])
    if checker is full_stream_checker or not has_call:
        assert reasons == []


# --- a call that was cut off does not run, and the thread goes on --------------------------------

COMPLETE = ("mail", '{"to": "al"}')
CUT = ("mail", '{"to": "bo"')
"""LangChain completes it."""
MALFORMED = ("mail", '{"to": "bo",,}')
LIMIT, BOTH = Turn(calls=[CUT], cut=True), Turn(calls=[COMPLETE, CUT], cut=True)
OPENAI = ("OpenAI Chat Completions", "OpenAI Responses")
STREAMING = (*OPENAI, "DeepSeek", "Anthropic", "Bedrock", "Gemini")
PATCHED_KINDS = ("hand_built", "create_agent", "middleware")
NO_CALL = {"content": {"role": "model", "parts": []}, "finishReason": "MALFORMED_FUNCTION_CALL"}
"""What Gemini sends instead of a call that it could not read."""


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
@pytest.mark.parametrize("name", STREAMING)
def test_no_unfinished_call_of_a_stream_runs(name):
    """Alone the model is asked again; a complete one before it runs. Bare, the cut call runs.

    Each turn is read in another way, in another kind of graph.
    """
    turns = [*unfinished(name).values(), BOTH, Turn(calls=[COMPLETE], cut=name != "Gemini")]
    for number, turn in enumerate(turns, STREAMING.index(name)):
        with ProviderServer(INTEGRATIONS[name], turn, TURNS["text"]) as server:
            build = KINDS[PATCHED_KINDS[number % 3]]
            agent = agent_with(build, server, asynchronous=number % 4 == 0)
            for text in ("go", "hello"):
                value = {"messages": [HumanMessage(text)]}
                if number % 2:
                    list(agent.graph.stream_events(value, agent.config, version="v3"))
                else:
                    agent.stream(value, "messages")
                assert agent.history[-1].text == "".join(WORDS)
            runs = isinstance(turn, Turn) and COMPLETE in turn.calls
            assert agent.desk.did == ({"mail al": 1} if runs else {})
            assert server.refused == [[], [], []]
        assert validate_messages(agent.history) == []
    with ProviderServer(INTEGRATIONS[name], LIMIT, TURNS["text"]) as server:
        bare = agent_with(BARE["create_agent"], server)
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
    with ProviderServer(INTEGRATIONS[name], Answer(200, BODIES[name])) as server:
        assert server.model.invoke("go").tool_calls[0]["args"] == ARGS
        agent = agent_with(KINDS["create_agent"], server)
        agent.say("go")
        assert len(server.requests) == 3
    assert agent.desk.did == {}
