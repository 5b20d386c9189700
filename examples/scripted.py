"""What the examples share: two tools, and a model that follows a script instead of a key."""

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.types import interrupt

ARGUMENTS = {"send_email": {"to": "bob"}, "wire_money": {"amount": 100}}

REFUSAL = "400: An assistant message with 'tool_calls' must be followed by tool messages"


class Script(BaseChatModel):
    """Calls its tools if a human writes "wire", and refuses what a provider refuses."""

    tools: tuple[str, ...]

    def __init__(self, *tools):
        super().__init__(tools=tools)

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        results = {message.tool_call_id for message in messages if message.type == "tool"}
        made = [call["id"] for m in messages if m.type == "ai" for call in m.tool_calls]
        if not results.issuperset(made):
            raise ValueError(REFUSAL)
        reply = AIMessage(f"I have read: {messages[-1].text}")
        if messages[-1].type == "human" and "wire" in messages[-1].text:
            calls = [
                {"name": name, "args": ARGUMENTS[name], "id": f"call_{number}"}
                for number, name in enumerate(self.tools, len(made) + 1)
            ]
            reply = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=reply)])


def send_email(to: str) -> str:
    """Send an email."""
    return f"sent to {to}"


def wire_money(amount: int) -> str:
    """Wire money, if a human agrees."""
    return f"wired {amount}: {interrupt(f'Wire {amount}?')}"
