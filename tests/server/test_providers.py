"""What the real integrations make of histories and streams, judged by their providers' rules."""

from __future__ import annotations

import copy
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from langchain.agents import create_agent
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.ai import add_ai_message_chunks

from kit import Agent, above, loop, model_node
from langgraph_patch import with_patching
from langgraph_patch.history.patch import patch_messages, validate_messages
from langgraph_patch.history.placeholders import PLACEHOLDER_KEY
from langgraph_patch.history.texts import Finding
from langgraph_patch.middleware import PatchToolCallsMiddleware
from langgraph_patch.streaming import (
    RETRACTED_KEY,
    UNFINISHED_KEY,
    final_answers,
    first_chunk_checker,
    full_stream_checker,
    message_from_stream,
)
from support import wires
from support.answer_agents import INPUT, weather
from support.damaged import DAMAGED, SHAPES, VERDICTS, Call, history, result
from support.provider_server import (
    INTEGRATIONS,
    THINKING,
    TURNS,
    WITH_BLOCKS,
    WORDS,
    Integration,
    ProviderServer,
    Turn,
)
from support.strategies import broken_histories
from support.streams import LAST, left, live
from support.wires import WIRES, broken_rules, payload, refusals

LETTERS = dict(zip(WIRES, "CRAGMB", strict=True))
BASES = list(dict.fromkeys(name.partition("@")[0] for name in DAMAGED))


def carrying(messages: list[Any]) -> tuple[str, ...]:
    """The wires that can carry a history: Anthropic's server-side tools are for Anthropic alone.

    Bedrock's integration raises at one, whole or cut.
    """
    has_search = any("server_tool" in str(message.content) for message in messages)
    return ("anthropic",) if has_search else WIRES


def shapes_of(base: str) -> list[str]:
    """The names of a damage, in every shape of the AI message."""
    return [name for name in DAMAGED if name.partition("@")[0] == base]


# --- what is sent of a damaged history ----------------------------------------------------------


@pytest.mark.parametrize("base", BASES)
def test_the_repair_is_taken_by_every_wire_that_can_carry_the_history(base):
    """Before it exactly the wires of the table refuse; after it none, by whatever rule."""
    found = {}
    for name in shapes_of(base):
        repaired = patch_messages(DAMAGED[name]).messages
        letters = {
            letter: "-" if refusals(wire, repaired, ours_only=False) else letter
            for wire, letter in LETTERS.items()
        }
        found[name] = "".join(
            after if after == "-" or refusals(wire, DAMAGED[name]) else "."
            for wire, after in zip(WIRES, letters.values(), strict=True)
        )
    assert found == {name: VERDICTS[name] for name in found}


@given(broken_histories())
@settings(max_examples=settings.default.max_examples // 2)
def test_valid_on_every_wire(broken):
    """The payload that each integration builds of a repaired history obeys the provider's rules."""
    repaired = patch_messages(broken.messages).messages
    wires.assert_accepted(repaired, carrying(repaired))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_healthy_history_with_parallel_calls_is_taken_everywhere(shape):
    """Two answered calls in a turn, results in any order, then a second turn: no wire refuses."""
    healthy = history(
        shape,
        *("hi", (Call("c1"), Call("c2", "wire")), result("r2", "c2"), result("r1", "c1")),
        *(Call("c3"), result("r3", "c3"), AIMessage("done"), "thanks"),
    )
    assert {wire: refusals(wire, healthy, ours_only=False) for wire in WIRES} == {
        wire: [] for wire in WIRES
    }


def gemini_parts(messages: list[Any], kind: str) -> list[dict[str, Any]]:
    """The parts of one kind that Gemini gets of a history; it is sent no ids."""
    parts = [part for content in payload("gemini", messages) for part in content["parts"]]
    return [part for part in parts if kind in part]


@pytest.mark.parametrize("shape", SHAPES)
def test_gemini_hears_the_second_result_of_an_id_used_again(shape):
    """Unrepaired, the first result is sent for both calls; repaired, each call has its own."""
    name = "F11-id-used-again-answered"
    broken = DAMAGED[name if shape == "string" else f"{name}@{shape}"]

    def outputs(messages: list[Any]) -> list[str]:
        parts = gemini_parts(messages, "function_response")
        return [part["function_response"]["response"]["output"] for part in parts]

    assert outputs(broken) == ["r1", "r1"]
    assert outputs(patch_messages(broken).messages) == ["r1", "r2"]


WITHOUT_ID = ("F12-id-none", "F12-id-empty", "mixed-used-again-and-misplaced")


@pytest.mark.parametrize("base", BASES)
def test_gemini_hears_each_result_under_the_name_of_its_call_and_every_signature(base):
    """A name that changed has changed in the result too; a new id keeps its signature."""
    for name in shapes_of(base):
        repaired = patch_messages(DAMAGED[name]).messages
        calls = gemini_parts(repaired, "function_call")
        answers = gemini_parts(repaired, "function_response")
        called = sorted(part["function_call"]["name"] for part in calls)
        assert called == sorted(part["function_response"]["name"] for part in answers), name
        if name.endswith("@gemini") and base not in WITHOUT_ID:
            assert calls, name
            assert all("thought_signature" in part for part in calls), name


@pytest.mark.parametrize("name", wires.INTEGRATIONS)
def test_nothing_of_what_a_repair_stores_is_sent(name):
    """Earlier ids of renamed calls and marks of placeholders stay in the thread."""
    calls: Any = [{"name": "mail", "args": {"to": "bob"}, "id": "c1"}]
    turn = [HumanMessage("go"), AIMessage("", tool_calls=calls, id="a1"), HumanMessage("x")]
    again = [AIMessage("", tool_calls=calls, id="a2"), ToolMessage("sent", tool_call_id="c1")]
    found = {(1, 0): Finding("cancelled", look_again=True)}
    patch = patch_messages([*turn, *again, HumanMessage("y")], evidence=found)
    marked = [m for m in patch.messages if "langgraph_patch" in m.additional_kwargs]
    assert [m.type for m in marked] == ["tool", "ai"]
    sent = repr(wires.INTEGRATIONS[name](copy.deepcopy(patch.messages)))
    assert "bob" in sent
    assert not re.search("langgraph_patch|earlier_ids|look_again", sent)


def test_a_renamed_custom_call_keeps_its_output():
    """Each free-text call has an id of its own in its block, and so has its output."""
    block = {"type": "custom_tool_call", "call_id": "c1", "id": "ctc", "name": "sh", "input": "ls"}
    call: Any = {"name": "sh", "args": {"__arg1": "ls"}, "id": "c1"}
    turn = [AIMessage([block], tool_calls=[call]), ToolMessage("a.txt", tool_call_id="c1")]
    sent = payload("openai-responses", patch_messages([*turn, HumanMessage("x"), *turn]).messages)
    ids = [item["call_id"] for item in sent if "call_id" in item]
    assert len(ids) == 4
    assert (ids[0], ids[2]) == (ids[1], ids[3])
    assert ids[0] != ids[2]


# --- the rules themselves -----------------------------------------------------------------------

UNNAMED = {"name": None, "args": None, "id": "c1", "error": "cut off"}
NAMELESS = [AIMessage("", invalid_tool_calls=[UNNAMED]), result("r", "c1")]
TEXT_INPUT = {"type": "tool_use", "id": "c1", "name": "look", "input": '{"a', "caller": {"x": 1}}
RESULT_BLOCK = {"type": "tool_result", "tool_use_id": "c1", "content": "r"}
NESTED = ToolMessage([RESULT_BLOCK], tool_call_id="c1")
SERVER_CALL = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
CUSTOM = {"type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": "ls"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "r"}
CHAT_CALL = {"id": "c1", "function": {"name": "look", "arguments": "{}"}}
ORPHAN = ["hi", AIMessage("ho"), result("r", "gone")]
TWICE = ["hi", Call("c1"), result("r1", "c1"), Call("c1"), result("r2", "c1")]
TWO_RESULTS = ["hi", Call("c1"), result("r", "c1"), result("r", "c1")]
LATE = ["hi", Call("c1"), "steer", result("r", "c1")]
OPEN = ["hi", Call("c1"), "never mind"]
SAME = ["hi", (Call("c1"), Call("c1")), result("r", "c1")]
LEGACY = ["hi", Call("c1"), FunctionMessage("r", name="look")]


def gemini_turn(kind: str, **fields: Any) -> dict[str, Any]:
    """One turn of Gemini's payload."""
    return {"role": "model" if kind == "function_call" else "user", "parts": [{kind: fields}]}


# (wire, rule, what breaks it). Dicts are a payload's messages, for what no integration builds.
BROKEN = [
    ("openai-chat", "bad-id", ["hi", Call(41 * "x"), result("r", 41 * "x")]),
    ("openai-chat", "bad-id", ["hi", Call(""), result("r", "")]),
    ("openai-chat", "bad-id", ["hi", Call(None)]),
    ("openai-chat", "bad-name", ["hi", Call("c1", "look it up"), result("r", "c1")]),
    ("openai-chat", "bad-arguments", ["hi", *NAMELESS]),
    ("openai-chat", "repeated-id", SAME),
    ("openai-chat", "repeated-result", TWO_RESULTS),
    ("openai-chat", "orphan-result", ORPHAN),
    ("openai-chat", "orphan-result", ["hi", Call("c1"), ChatMessage("r", role="tool")]),
    ("openai-chat", "unanswered-call", ["hi", Call("c1")]),
    ("openai-chat", "unanswered-call", LATE),
    ("openai-chat", "result-in-content", ["hi", Call("c1"), HumanMessage([RESULT_BLOCK])]),
    ("openai-chat", "foreign-content", ["hi", AIMessage([SERVER_CALL])]),
    ("openai-responses", "bad-id", ["hi", Call(65 * "x"), result("r", 65 * "x")]),
    ("openai-responses", "bad-name", ["hi", Call("c1", ""), result("r", "c1")]),
    ("openai-responses", "bad-arguments", ["hi", *NAMELESS]),
    ("openai-responses", "repeated-result", TWICE),
    ("openai-responses", "orphan-result", ORPHAN),
    ("openai-responses", "unanswered-call", OPEN),
    ("openai-responses", "unanswered-call", [CUSTOM, OUTPUT]),
    ("openai-responses", "repeated-id", [CUSTOM, CUSTOM]),
    ("openai-responses", "bad-role", LEGACY),
    ("openai-responses", "lonely-reasoning", [{"type": "reasoning", "id": "rs_1"}]),
    ("anthropic", "bad-id", ["hi", Call(""), result("r", "")]),
    ("anthropic", "bad-name", ["hi", Call("c1", ""), result("r", "c1")]),
    ("anthropic", "bad-arguments", ["hi", AIMessage([TEXT_INPUT]), result("r", "c1")]),
    ("anthropic", "repeated-id", TWICE),
    ("anthropic", "repeated-result", TWO_RESULTS),
    ("anthropic", "orphan-result", ORPHAN),
    ("anthropic", "unanswered-call", OPEN),
    ("anthropic", "late-result", LATE),
    ("anthropic", "raised", LEGACY),
    ("anthropic", "raised", ["hi", SystemMessage("a"), "so", SystemMessage("b")]),
    (
        "anthropic",
        "text-after-call",
        ["hi", AIMessage([Call("c1").block("anthropic"), "so"]), result("r", "c1")],
    ),
    ("anthropic", "open-server-tool", ["hi", AIMessage([SERVER_CALL])]),
    ("anthropic", "empty-message", [""]),
    ("anthropic", "foreign-content", ["hi", AIMessage([Call("c1").block("v1")])]),
    ("gemini", "bad-name", ["hi", Call("c1", ""), result("r", "c1", name="look")]),
    ("gemini", "bad-name", [gemini_turn("function_response", response={})]),
    ("gemini", "bad-arguments", [gemini_turn("function_call", name="look", args="{}")]),
    ("gemini", "unanswered-call", OPEN),
    ("gemini", "orphan-result", [gemini_turn("function_response", name="look")]),
    ("gemini", "raised", ["hi", Call("c1"), HumanMessage([RESULT_BLOCK])]),
    ("gemini", "call-after-model", ["hi", AIMessage("ho"), Call("c1"), result("r", "c1")]),
    ("mistral", "bad-id", [{"role": "assistant", "content": "", "tool_calls": [CHAT_CALL]}]),
    ("mistral", "unanswered-call", LATE),
    ("mistral", "empty-message", ["hi", AIMessage("")]),
    ("mistral", "foreign-content", ["hi", AIMessage([SERVER_CALL])]),
    ("bedrock", "bad-id", ["hi", Call("c 1"), result("r", "c 1")]),
    (
        "bedrock",
        "bad-arguments",
        [{"content": [{"toolUse": {"toolUseId": "c1", "name": "look", "input": "{}"}}]}],
    ),
    ("bedrock", "repeated-id", TWICE),
    ("bedrock", "repeated-result", TWO_RESULTS),
    ("bedrock", "orphan-result", ORPHAN),
    ("bedrock", "unanswered-call", OPEN),
    ("bedrock", "late-result", LATE),
    ("bedrock", "bad-shape", ["hi", Call("c1"), NESTED]),
]


@pytest.mark.parametrize(("wire", "rule", "steps"), BROKEN)
def test_a_broken_rule_is_named(wire, rule, steps):
    """What breaks a rule of the provider is refused under that rule's name."""
    if all(isinstance(step, dict) for step in steps):
        found = [str(refusal) for refusal in broken_rules(wire, steps)]
    else:
        shape = "anthropic" if wire in ("anthropic", "bedrock") else "string"
        found = refusals(wire, history(shape, *steps), ours_only=False)
    assert rule in {refusal.partition(":")[0] for refusal in found}


def test_every_rule_has_a_case():
    """No rule goes untested."""
    named = re.findall(r'Refusal\(\s*"([a-z-]+)"', Path(wires.__file__).read_text("utf-8"))
    assert set(named) == {rule for _, rule, _ in BROKEN}


# --- clients of providers that refuse a bad history -----------------------------------------------

BOOK = Turn(calls=[("mail", '{"to": "bob"}'), ("wire", '{"amount": 5}')])
BUILDS = {
    "bare": create_agent,
    "create_agent": lambda model, tools, **more: with_patching(create_agent(model, tools, **more)),
    "by hand": lambda model, tools, checkpointer: with_patching(
        loop(model.bind_tools(tools), tools).compile(checkpointer=checkpointer), record=True
    ),
    "middleware": lambda *args, **more: create_agent(
        *args, middleware=[PatchToolCallsMiddleware()], **more
    ),
}


def talk(server: ProviderServer, build: str, *, asynchronous: bool = False) -> Agent:
    """An agent with that provider's model, which has sent its mail and waits for a human."""

    def agent(_model: Any, tools: Any, saver: Any) -> Any:
        return BUILDS[build](server.model, tools, checkpointer=saver)

    made = Agent(agent, asynchronous=asynchronous)
    made.stream({"messages": [HumanMessage("book it")]}, "messages")
    assert [each.value for each in made.interrupts] == ["wire 5?"]
    return made


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_f01_unpatched_it_is_refused(name):
    """A new message instead of an approval: status 400, now and at every later message."""
    with ProviderServer(INTEGRATIONS[name], BOOK, TURNS["text"]) as server:
        agent = talk(server, "bare")
        for text in ("never mind", "hello?"):
            with pytest.raises(Exception, match="unanswered-call"):
                agent.stream({"messages": [HumanMessage(text)]}, "messages")
    assert [bool(broken) for broken in server.refused] == [False, True, True]


@pytest.mark.parametrize(
    ("name", "build", "asynchronous"),
    [
        (name, ("create_agent", "by hand", "middleware")[place % 3], place % 2 == 1)
        for place, name in enumerate(INTEGRATIONS)
    ],
)
def test_f02_patched_the_conversation_goes_on(name, build, asynchronous):
    """The provider accepts the request: it has the real result and a placeholder."""
    with ProviderServer(INTEGRATIONS[name], BOOK, TURNS["text"]) as server:
        agent = talk(server, build, asynchronous=asynchronous)
        for text in ("never mind", "hello?"):
            agent.stream({"messages": [HumanMessage(text)]}, "messages")
            assert agent.history[-1].text == "".join(WORDS)
    assert server.refused == [[], [], []]
    for request in server.requests[1:]:
        sent = repr(request)
        assert sent.count("sent to bob") == 1
        assert len(re.findall("was waiting for human input", sent)) == 1
    assert validate_messages(agent.history) == []
    assert agent.desk.did == {"mail bob": 1}


def test_f26_what_the_model_thought_is_sent_back():
    """Thinking and its signature go through a repair byte by byte."""
    with ProviderServer(INTEGRATIONS["Anthropic, thinking"], BOOK, TURNS["text"]) as server:
        talk(server, "create_agent").stream({"messages": [HumanMessage("no")]}, "messages")
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
def test_f25_a_cut_behind_every_chunk_leaves_a_history_that_every_wire_accepts(name):
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


@pytest.mark.parametrize("name", ["OpenAI Chat Completions", "OpenAI Responses", "Anthropic"])
def test_a_connection_that_breaks_off_anywhere_leaves_a_history_that_goes_on(name):
    """The server goes away in the middle of an event: what the integration made of it is stored."""
    body = b"".join(STREAMS[name].events(TURNS["text, then a call"]))
    with ProviderServer(STREAMS[name], []) as server:
        for cut in range(1, len(body), len(body) // 20):
            server.script = [[body[:cut]]]
            assert_goes_on(message_from_stream(streamed(server)), STREAMS[name])


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
    ("name", "turn", "checker"),
    [
        (name, turn, CHECKERS[(n + m) % len(CHECKERS)])
        for n, name in enumerate(STREAMS)
        for m, turn in enumerate(TURNS)
    ],
)
def test_a_client_has_the_text_of_an_answer_and_nothing_else(name, turn, checker):
    """Whatever the integration's chunks look like; only text before a call is retracted."""
    with ProviderServer(STREAMS[name], TURNS[turn]) as server:
        graph = above(model_node(server.model.bind_tools([weather]))).compile()
        shown = list(final_answers(graph.stream(INPUT, stream_mode="messages"), checker=checker))
    has_call = bool(TURNS[turn].calls) or name.startswith("Anthropic, v")  # which calls `now`
    assert left(shown) == ([] if has_call else ["".join(WORDS)])
    reasons = [m[RETRACTED_KEY] for t, m in shown if isinstance(t, RemoveMessage)]
    assert reasons in ([], ["tool_call"])
    if checker is full_stream_checker or not has_call:
        assert reasons == []
