"""Histories that a provider refuses though their calls and results are valid; who asks again.

`STATES` maps a name to a history and what can be stored of it; `FOREIGN` to a history that only
another provider's models read, and its plain form; `BLANK` to one in which no model says nothing,
and what is sent. Each ends with a human message. `PLACES` are
the graphs that ask a model again, `WAYS` how they are run.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START

from kit import Desk, StrictModel, loop
from langgraph_patch import patch_model, with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware

CLAUDE = {"model_provider": "anthropic", "model_name": "claude-sonnet-4-6"}
TEXT = {"type": "text", "text": "It rains."}
BLANK_TEXT = {"type": "text", "text": " \n"}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
UNSIGNED = {"type": "thinking", "thinking": "hm"}
REDACTED = {"type": "redacted_thinking", "data": "c2ln"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
MCP = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "lookup", "input": {}}
COMPUTER = {"type": "computer_call", "call_id": "cc1", "id": "cu_1", "action": {}}
IMAGE = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
NO_TEXT = {"type": "text", "text": "[no text]"}
BEDROCKS = {"type": "reasoning_content", "reasoning_content": {"text": "hm"}}
COUNTED = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
REASONED = {**COUNTED, "output_token_details": {"reasoning": 2}}
"""What OpenAI counts if a model reasoned."""

H = HumanMessage
ASK, AGAIN = H("Rain?", id="h1"), H("Well?", id="h9")


def reasoning(number: int = 1) -> dict[str, Any]:
    """A reasoning item of the Responses API."""
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gA"}


def said(text: str, item_id: str | None = None) -> dict[str, Any]:
    """A text block, with the id of its item."""
    return {"type": "text", "text": text, **({"id": item_id} if item_id else {})}


def call_block(item_id: str | None = "fc_1", call_id: str = "c1") -> dict[str, Any]:
    """A `function_call` block."""
    own = {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"}
    return {**own, **({"id": item_id} if item_id else {})}


def ai(content: Any, *calls: str, id: str = "a1", **fields: Any) -> AIMessage:  # noqa: A002 - its field
    """A message of a model; each of the calls is an id."""
    named: Any = [{"name": "look", "args": {}, "id": each, "type": "tool_call"} for each in calls]
    return AIMessage(content, tool_calls=named, id=id, **fields)


def result(call_id: str = "c1", content: Any = "rain") -> ToolMessage:
    """The result of a call."""
    return ToolMessage(content, tool_call_id=call_id, id=f"t-{call_id}", name="look")


def claude(*blocks: Any, **fields: Any) -> AIMessage:
    """A message that Claude wrote."""
    return ai([*blocks], response_metadata=CLAUDE, **fields)


def gpt(*blocks: Any, calls: Any = (), **fields: Any) -> AIMessage:
    """A message that OpenAI's Responses API gave."""
    metadata = {"model_provider": "openai"}
    return ai([*blocks], *calls, response_metadata=metadata, **fields)


def started(name: str) -> dict[str, Any]:
    """The text in the place of a call of the provider without a result."""
    return {"type": "text", "text": f"[{name} was started; no result is recorded.]"}


def lost(item_id: str | None) -> AIMessage:
    """A call without the reasoning that the provider counted."""
    return gpt(call_block(item_id), calls=["c1"], usage_metadata=REASONED)


SAID, OK = ai("It rains.", id="a0"), ai("Yes.", id="a2")
ITEM = said("It rains.", "msg_1")
ANSWER, AGAIN_SAID = gpt(reasoning(), ITEM), H("And now?")
CALL = gpt(reasoning(), call_block(), calls=["c1"])
CACHED = gpt(reasoning(), call_block("fc_1", "c2"), calls=["c2"], id="a2")
NEW = gpt(call_block(None, "c2"), calls=["c2"], id="a2")
USED = "[{} was used; this model cannot read it.]"
SCREENSHOT = ToolMessage(
    [{"type": "input_image", "image_url": "data:image/png;base64,aGk="}],
    tool_call_id="cc1",
    id="t-cc1",
    additional_kwargs={"type": "computer_call_output"},
)

State = tuple[list[BaseMessage], list[BaseMessage]]


def asked(states: dict[str, Any]) -> dict[str, State]:
    """The messages of each state, before and after, with a question before and behind them."""
    return {
        name: ([ASK, *before, AGAIN], [ASK, *after, AGAIN])
        for name, (before, after) in states.items()
    }


STATES = asked(
    {
        "no text": ([ai("")], [ai("[no text]")]),
        "no text, twice": ([ai(""), ai([], id="a2")], [ai("[no text]")]),
        "blanks behind an answer": ([SAID, ai(" \n")], [SAID]),
        "blank blocks": ([SAID, ai([BLANK_TEXT, ""])], [SAID]),
        "blanks before an answer": ([ai(""), SAID], [SAID]),
        "thinking alone": ([claude(THINKING, REDACTED)], [claude(NO_TEXT)]),
        "reasoning alone": ([gpt(reasoning())], [gpt(NO_TEXT)]),
        "Bedrock's reasoning alone": ([SAID, ai([BEDROCKS])], [SAID]),
        "reasoning at the end": ([gpt(reasoning(), ITEM, reasoning(2))], [ANSWER]),
        "a call whose reasoning is lost": (
            [lost("fc_1"), result(), SAID],
            [lost(None), result(), SAID],
        ),
        "an answer from a cache": (
            [ANSWER, AGAIN_SAID, gpt(reasoning(), ITEM, id="a2")],
            [ANSWER, AGAIN_SAID, gpt(said("It rains."), id="a2")],
        ),
        "a call from a cache": (
            [CALL, result(), SAID, AGAIN_SAID, CACHED, result("c2")],
            [CALL, result(), SAID, AGAIN_SAID, NEW, result("c2")],
        ),
        "thinking without a signature": ([claude(UNSIGNED, TEXT)], [claude(TEXT)]),
        "thinking at the end": (
            [claude(THINKING, TEXT, THINKING, BLANK_TEXT)],
            [claude(THINKING, TEXT, BLANK_TEXT)],
        ),
        "a search without a result": (
            [claude(TEXT, SEARCH)],
            [claude(TEXT, started("web_search"))],
        ),
        "an MCP call without a result": ([claude(MCP)], [claude(started("lookup"))]),
        "a computer call without its output": (
            [gpt(said("Now."), reasoning(), COMPUTER)],
            [gpt(said("Now."), started("computer"))],
        ),
    }
)
"""A history in each state of a message, and what can be stored of it."""

FOREIGN = asked(
    {
        "Claude's thinking": ([claude(THINKING, REDACTED, TEXT)], [ai("It rains.")]),
        "Claude's search": (
            [claude(TEXT, SEARCH, FOUND, said("Yes."))],
            [ai(f"It rains.\n{USED.format('web_search')}\nYes.")],
        ),
        "OpenAI's call": ([CALL, result(), SAID], [ai("", "c1"), result(), SAID]),
        "OpenAI's refusal": ([gpt({"type": "refusal", "refusal": "I can't."})], [ai("I can't.")]),
        "OpenAI's computer": (
            [gpt(COMPUTER), SCREENSHOT, SAID],
            [ai(USED.format("computer")), SAID],
        ),
        "an image": ([ai([IMAGE, TEXT])], [ai(f"{USED.format('image')}\nIt rains.")]),
        "blank text beside a call": ([ai(" ", "c1"), result()], [ai("", "c1"), result()]),
        "a name with a space": (
            [ai("It rains.", name="Weather Agent")],
            [ai("It rains.", name="Weather_Agent")],
        ),
    }
)
"""A history that another provider's models do not read, and its plain form."""

FOREIGN["two system messages"] = (
    [SystemMessage("A."), ASK, SAID, SystemMessage("B."), AGAIN],
    [SystemMessage("A.\n\nB."), ASK, SAID, AGAIN],
)

_OF_A_HUMAN: dict[str, tuple[Any, Any]] = {
    "no text": ("", "[no text]"),
    "blanks": (" \n", "[no text]"),
    "blank blocks": ([BLANK_TEXT, "", {"text": " "}], [NO_TEXT]),
    "a blank block beside others": ([TEXT, {"text": ""}, IMAGE, "\n"], [TEXT, IMAGE]),
}
BLANK = asked(
    {
        **{
            f"{name} of a human": ([SAID, H(blank, id="h2"), OK], [SAID, H(text, id="h2"), OK])
            for name, (blank, text) in _OF_A_HUMAN.items()
        },
        "a blank result": (
            [ai("", "c1"), result(content=[BLANK_TEXT]), OK],
            [ai("", "c1"), result(content=[NO_TEXT]), OK],
        ),
        "a blank system message": ([SystemMessage(" "), SAID], [SystemMessage("[no text]"), SAID]),
    }
)
"""A history with a blank that is of no model, and what is sent of it."""


# --- who asks again -----------------------------------------------------------------------------


class RefusedError(Exception):
    """What an SDK raises for status 400."""

    status_code = 400


class RefusingModel(StrictModel):
    """Says its script line by line, and then `done`, unless the rule names a reason to refuse.

    Attributes:
        rule: Returns why a history is refused, or None; or raises another error.
        script: Its answers.
        seen: The histories of its requests.
    """

    rule: Callable[[list[BaseMessage]], str | None]

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        """Bind nothing."""
        return self

    def _line(self, messages: list[BaseMessage]) -> AIMessage:
        self.seen.append(list(messages))
        if reason := self.rule(messages):
            raise RefusedError(reason)
        return self.script.pop(0) if self.script else AIMessage("done")


def by_hand(model: Any, tools: Any, **options: Any) -> Any:
    """The loop of LangGraph's tutorial."""
    return loop(model.bind_tools(tools), tools).compile(**options)


PLACES: dict[str, Callable[..., Any]] = {
    "bare": create_agent,
    "create_agent": lambda model, tools, **more: with_patching(create_agent(model, tools, **more)),
    "middleware": lambda model, tools, **more: create_agent(
        model, tools, middleware=[PatchToolCallsMiddleware()], **more
    ),
    "by hand": lambda model, tools, **more: with_patching(by_hand(model, tools, **more)),
    "patch_model": lambda model, tools, **more: by_hand(patch_model(model), tools, **more),
}
"""Where a model is called: bare, and in each place that asks it again."""


def _collected(stream: AsyncIterator[Any]) -> None:
    async def collect() -> None:
        async for _ in stream:
            pass

    asyncio.run(collect())


WAYS: dict[str, Callable[..., Any]] = {
    "invoke": lambda graph, *args: graph.invoke(*args),
    "ainvoke": lambda graph, *args: asyncio.run(graph.ainvoke(*args)),
    "stream": lambda graph, *args: list(graph.stream(*args, stream_mode=["messages", "updates"])),
    "astream": lambda graph, *args: _collected(graph.astream(*args, stream_mode="messages")),
    "events": lambda graph, *args: _collected(graph.astream_events(*args, version="v2")),
}
"""How a graph is run."""

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def requests(
    graph: Any, model: StrictModel, message: Any, way: str = "invoke", error: Any = Exception
) -> int:
    """How many requests a turn took; 0 for a turn that was refused, with this kind of error."""
    before = len(model.seen)
    try:
        WAYS[way](graph, {"messages": message}, CONFIG)
    except error:
        return 0
    return len(model.seen) - before


def in_three_turns(place: str, rule: Callable[..., Any], history: list[Any]) -> list[int]:
    """How many requests each of three turns took, the first with the last message."""
    model = RefusingModel(rule=rule)
    graph = PLACES[place](model, Desk().tools(), checkpointer=InMemorySaver())
    graph.update_state(CONFIG, {"messages": history[:-1]}, as_node=START)
    messages = (history[-1], H("Then?"), H("And then?"))
    return [requests(graph, model, message) for message in messages]
