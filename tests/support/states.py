"""Histories that are valid in their calls and results, and that a provider refuses all the same.

`STATES` maps a name to a history and what can be stored of it; `FOREIGN` to a history that only
another provider's models read. Each ends with a human message.
"""

from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

Blocks = list[Any]

CLAUDE = {"model_provider": "anthropic", "model_name": "claude-sonnet-4-6"}
TEXT = {"type": "text", "text": "It rains."}
BLANK = {"type": "text", "text": " \n"}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
UNSIGNED = {"type": "thinking", "thinking": "hm"}
REDACTED = {"type": "redacted_thinking", "data": "c2ln"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
MCP = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "lookup", "input": {}}
COMPUTER = {"type": "computer_call", "call_id": "cc1", "id": "cu_1", "action": {}}
IMAGE = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
NO_TEXT = {"type": "text", "text": "[no text]"}
REASONED = {
    "input_tokens": 1,
    "output_tokens": 2,
    "total_tokens": 3,
    "output_token_details": {"reasoning": 2},
}
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


def result(call_id: str = "c1") -> ToolMessage:
    """The result of a call."""
    return ToolMessage("rain", tool_call_id=call_id, id=f"t-{call_id}", name="look")


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


SAID = ai("It rains.", id="a0")

State = tuple[list[BaseMessage], list[BaseMessage]]

STATES: dict[str, State] = {
    "no text": ([ASK, ai(""), AGAIN], [ASK, ai("[no text]"), AGAIN]),
    "no text, twice": (
        [ASK, ai(""), ai([], id="a2"), AGAIN],
        [ASK, ai("[no text]"), AGAIN],
    ),
    "blanks behind an answer": ([ASK, SAID, ai(" \n"), AGAIN], [ASK, SAID, AGAIN]),
    "blank blocks": ([ASK, SAID, ai([BLANK, ""]), AGAIN], [ASK, SAID, AGAIN]),
    "blanks before an answer": ([ASK, ai(""), SAID, AGAIN], [ASK, SAID, AGAIN]),
    "thinking alone": ([ASK, claude(THINKING, REDACTED), AGAIN], [ASK, claude(NO_TEXT), AGAIN]),
    "reasoning alone": ([ASK, gpt(reasoning()), AGAIN], [ASK, gpt(NO_TEXT), AGAIN]),
    "Bedrock's reasoning alone": (
        [
            ASK,
            SAID,
            ai([{"type": "reasoning_content", "reasoning_content": {"text": "hm"}}]),
            AGAIN,
        ],
        [ASK, SAID, AGAIN],
    ),
    "reasoning at the end": (
        [ASK, gpt(reasoning(), said("It rains.", "msg_1"), reasoning(2)), AGAIN],
        [ASK, gpt(reasoning(), said("It rains.", "msg_1")), AGAIN],
    ),
    "a call whose reasoning is lost": (
        [ASK, gpt(call_block(), calls=["c1"], usage_metadata=REASONED), result(), SAID, AGAIN],
        [ASK, gpt(call_block(None), calls=["c1"], usage_metadata=REASONED), result(), SAID, AGAIN],
    ),
    "an answer from a cache": (
        [
            ASK,
            gpt(reasoning(), said("It rains.", "msg_1")),
            AGAIN,
            gpt(reasoning(), said("It rains.", "msg_1"), id="a2"),
            H("And now?"),
        ],
        [
            ASK,
            gpt(reasoning(), said("It rains.", "msg_1")),
            AGAIN,
            gpt(said("It rains."), id="a2"),
            H("And now?"),
        ],
    ),
    "a call from a cache": (
        [
            *(ASK, gpt(reasoning(), call_block(), calls=["c1"]), result(), SAID, AGAIN),
            *(gpt(reasoning(), call_block("fc_1", "c2"), calls=["c2"], id="a2"), result("c2")),
            H("And now?"),
        ],
        [
            *(ASK, gpt(reasoning(), call_block(), calls=["c1"]), result(), SAID, AGAIN),
            *(gpt(call_block(None, "c2"), calls=["c2"], id="a2"), result("c2")),
            H("And now?"),
        ],
    ),
    "thinking without a signature": (
        [ASK, claude(UNSIGNED, TEXT), AGAIN],
        [ASK, claude(TEXT), AGAIN],
    ),
    "thinking at the end": (
        [ASK, claude(THINKING, TEXT, THINKING, BLANK), AGAIN],
        [ASK, claude(THINKING, TEXT, BLANK), AGAIN],
    ),
    "a search without a result": (
        [ASK, claude(TEXT, SEARCH), AGAIN],
        [ASK, claude(TEXT, started("web_search")), AGAIN],
    ),
    "an MCP call without a result": (
        [ASK, claude(MCP), AGAIN],
        [ASK, claude(started("lookup")), AGAIN],
    ),
    "a computer call without its output": (
        [ASK, gpt(said("Now."), reasoning(), COMPUTER), AGAIN],
        [ASK, gpt(said("Now."), started("computer")), AGAIN],
    ),
}
"""A history in each state of a message, and what can be stored of it."""

USED = "[{} was used; this model cannot read it.]"
SCREENSHOT = ToolMessage(
    [{"type": "input_image", "image_url": "data:image/png;base64,aGk="}],
    tool_call_id="cc1",
    id="t-cc1",
    additional_kwargs={"type": "computer_call_output"},
)

FOREIGN: dict[str, State] = {
    "Claude's thinking": (
        [ASK, claude(THINKING, REDACTED, TEXT), AGAIN],
        [ASK, ai("It rains."), AGAIN],
    ),
    "Claude's search": (
        [ASK, claude(TEXT, SEARCH, FOUND, said("Yes.")), AGAIN],
        [ASK, ai(f"It rains.\n{USED.format('web_search')}\nYes."), AGAIN],
    ),
    "OpenAI's call": (
        [ASK, gpt(reasoning(), call_block(), calls=["c1"]), result(), SAID, AGAIN],
        [ASK, ai("", "c1"), result(), SAID, AGAIN],
    ),
    "OpenAI's refusal": (
        [ASK, gpt({"type": "refusal", "refusal": "I can't."}), AGAIN],
        [ASK, ai("I can't."), AGAIN],
    ),
    "OpenAI's computer": (
        [ASK, gpt(COMPUTER), SCREENSHOT, SAID, AGAIN],
        [ASK, ai(USED.format("computer")), SAID, AGAIN],
    ),
    "an image": (
        [ASK, ai([IMAGE, TEXT]), AGAIN],
        [ASK, ai(f"{USED.format('image')}\nIt rains."), AGAIN],
    ),
    "blank text beside a call": (
        [ASK, ai(" ", "c1"), result(), AGAIN],
        [ASK, ai("", "c1"), result(), AGAIN],
    ),
    "two system messages": (
        [SystemMessage("A."), ASK, SAID, SystemMessage("B."), AGAIN],
        [SystemMessage("A.\n\nB."), ASK, SAID, AGAIN],
    ),
    "a name with a space": (
        [ASK, ai("It rains.", name="Weather Agent"), AGAIN],
        [ASK, ai("It rains.", name="Weather_Agent"), AGAIN],
    ),
}
"""A history that another provider's models do not read, and its plain form."""
