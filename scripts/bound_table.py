# ruff: noqa: SLF001 - the payload is what a private method builds
"""Print what happens to threads of a model whose thinking is bound to what was sent before it.

Each case, bare and with `with_patching`: how many requests each of four turns took; `-` is a turn
that was refused. Needs the integrations (extra `test`): `python scripts/bound_table.py`.

A `BoundModel` is of Claude's kind: it signs each `thinking` block with an HMAC over the system
prompt, the tools and the messages before it, and verifies all signatures of the payload that
`ChatAnthropic` builds, as platform.claude.com says in build-with-claude/preserved-thinking and
.../prefix-checks. `turns` runs graphs and edits that change what was sent.
"""

from __future__ import annotations

import hmac
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware, dynamic_prompt
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from kit import Desk, StrictModel, above, loop
from langgraph_patch import with_patching
from support.refused import CLAUDE, CONFIG, RefusedError, requests

UNBOUND = (
    "messages.{}.content.{}: Invalid `signature` in `thinking` block. The block is bound to a "
    "different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
NO_THINKING = (
    "messages.{}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{}`. When "
    "`thinking` is enabled, a final `assistant` message must start with a thinking block."
)


_CLAUDE: Any = ChatAnthropic(model="claude-sonnet-4-6", api_key="k")


class BoundModel(StrictModel):
    """Says its script line by line, and then `done`; each line with thinking before it.

    Attributes:
        script: Its answers: texts, or lists of calls as (name, args).
        binds: Whether thinking is bound to what was sent before it.
        demands: Whether a turn in which a tool ran must start with thinking, as with Claude 4.
        tools: The names of the tools, which are signed as well.
    """

    binds: bool = True
    demands: bool = False
    tools: tuple[str, ...] = ()

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        """The same model with these tools: its script and its requests are one list."""
        return self.model_copy(update={"tools": tuple(each.name for each in tools)})

    def _signature(self, sent: dict[str, Any], before: list[Any]) -> str:
        parts = [sent.get("system"), self.tools, before]
        return hmac.new(b"secret", json.dumps(parts).encode(), "sha256").hexdigest()

    def _verify(self, sent: dict[str, Any]) -> None:
        """Raise as Anthropic does on thinking that is bound to something else."""
        messages = sent["messages"]
        for index, message in enumerate(messages):
            blocks = message["content"] if isinstance(message["content"], list) else []
            for place, block in enumerate(blocks):
                before = [*messages[:index], {**message, "content": blocks[:place]}]
                is_checked = self.binds and block["type"] == "thinking"
                if is_checked and block.get("signature") != self._signature(sent, before):
                    raise RefusedError(UNBOUND.format(index, place))
        if self.demands and len(messages) > 1:
            blocks = [b for b in messages[-1]["content"] if isinstance(b, dict)]
            asked = messages[-2]["content"]
            first = asked[0]["type"] if isinstance(asked, list) else "text"
            if any(b["type"] == "tool_result" for b in blocks) and first != "thinking":
                raise RefusedError(NO_THINKING.format(len(messages) - 2, first))

    def _line(self, messages: list[BaseMessage]) -> AIMessage:
        self.seen.append(list(messages))
        sent = _CLAUDE._get_request_payload(messages)
        self._verify(sent)
        line = self.script.pop(0) if self.script else "done"
        before = [*sent["messages"], {"role": "assistant", "content": []}]
        thinking = {"thinking": "hm", "signature": self._signature(sent, before)}
        content: list[Any] = [{"type": "thinking", **thinking}]
        calls: list[Any] = []
        if isinstance(line, str):
            content.append({"type": "text", "text": line})
        for number, (name, args) in enumerate([] if isinstance(line, str) else line):
            call = {"name": name, "id": f"toolu_{len(self.seen)}_{number}"}
            calls.append({**call, "args": args, "type": "tool_call"})
            content.append({"type": "tool_use", **call, "input": args})
        return AIMessage(content, tool_calls=calls, response_metadata=CLAUDE)

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[Any]:
        fields = self._line(messages).model_dump(exclude={"type", "invalid_tool_calls"})
        yield ChatGenerationChunk(message=AIMessageChunk(**fields, chunk_position="last"))


# --- what an application does with its own history --------------------------------------------

MAIL = [("mail", {"to": "bob"})]
TURNS = ["done", MAIL, "sent", "done", MAIL, "sent", "done"]
"""What a model says in four turns; in two of them it calls a tool."""


def agent(model: Any, script: Any = None, tools: Any = None, **options: Any) -> Any:
    """`create_agent` with a prompt, and with a script of its own if there is one."""
    speaker = model.model_copy(update={"script": script}) if script else model
    options = {"system_prompt": "Be brief.", **options}
    return create_agent(speaker, Desk().tools()[:1] if tools is None else tools, **options)


def paused(model: Any) -> Any:
    """README's example: a call waits for a human, and a message comes instead of the answer."""
    script = [[*MAIL, ("wire", {"amount": 5})], "fine", *TURNS[3:]]
    return agent(model, script, Desk().tools())


def summarized(model: Any) -> Any:
    """Old messages become a summary."""
    summary = FakeListChatModel(responses=["They talked."] * 9)
    limits: Any = {"trigger": ("messages", 6), "keep": ("messages", 3)}
    return agent(model, middleware=[SummarizationMiddleware(summary, **limits)])


def with_changing_prompt(model: Any) -> Any:
    """The prompt is another one in each turn."""

    @dynamic_prompt
    def prompt(request: Any) -> str:
        return f"{sum(m.type == 'human' for m in request.messages)} messages so far."

    return agent(model, middleware=[prompt])


def with_window(model: Any) -> Any:
    """The node shows its model the newest messages alone."""

    def window(messages: list[Any]) -> list[Any]:
        start = max(i for i, m in enumerate(messages) if m.type == "human")
        return messages[max(0, start - 2) :]

    tools = Desk().tools()[:1]
    return loop(RunnableLambda(window) | model.bind_tools(tools), tools).compile()


def swarm(model: Any) -> Any:
    """Two agents with prompts of their own on one history; each hands over to the other."""
    scripts = {
        "alice": ["hi", [("transfer_to_bob", {})], "back", "done"],
        "bob": ["hello", [("transfer_to_alice", {})], "done"],
    }
    agents = []
    for (name, script), other in zip(scripts.items(), reversed(scripts), strict=True):
        tools = [create_handoff_tool(agent_name=other)]
        agents.append(agent(model, script, tools, system_prompt=f"You are {name}.", name=name))
    return create_swarm(agents, default_active_agent="alice").compile()


def planner_and_executor(model: Any) -> Any:
    """Two agents with prompts of their own, one after the other in each turn."""
    scripts = (["a plan"] * 4, [MAIL, "sent"] * 4)
    return above(*(agent(model, s, system_prompt=f"Number {len(s)}.") for s in scripts)).compile()


def supervisor(model: Any, patch: Any) -> Any:
    """A boss and a worker; the boss reads the worker's last message.

    A function calls the worker, so it is patched on its own.
    """
    worker = patch(agent(model, [MAIL, "sent"] * 4, name="worker"))
    boss = model.model_copy(update={"script": [[("transfer_to_worker", {})], "done"] * 4})
    with warnings.catch_warnings():  # it calls `create_react_agent`, which is deprecated
        warnings.simplefilter("ignore")
        return create_supervisor([worker], model=boss, prompt="Lead.").compile()


SUPERVISOR = "a supervisor"

GRAPHS: dict[str, Callable[[Any], Any]] = {
    "nothing": agent,
    "placeholders": paused,
    "a summary": summarized,
    "a prompt that changes": with_changing_prompt,
    "a window": with_window,
    "a swarm": swarm,
    "planner and executor": planner_and_executor,
}
"""What an application does with its own history; the first one does nothing."""


# --- what a repair changes ----------------------------------------------------------------------


def late_result(messages: list[Any]) -> list[Any]:
    """A real result in the place of a placeholder that was answered."""
    late = {"content": "late"}
    return [m.model_copy(update=late) if isinstance(m, ToolMessage) else m for m in messages]


def stored_repair(messages: list[Any]) -> list[Any]:
    """A call and its result, before messages that were answered."""
    call: Any = {"name": "mail", "args": {}, "id": "added"}
    added = [AIMessage("", tool_calls=[call]), ToolMessage("?", tool_call_id="added")]
    return [messages[0], *added, *messages[1:]]


EDITS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "a late result": late_result,
    "a stored repair": stored_repair,
    "a removed turn": lambda messages: messages[2:],
}
"""What an edit of the state does between the second and the third turn."""


CASES = [*GRAPHS, SUPERVISOR, *EDITS]


def turns(
    case: str, patch: Callable[[Any], Any], *, demands: bool = False, way: str = "invoke"
) -> list[int]:
    """How many requests each of four turns took; 0 for a turn that was refused.

    Args:
        case: The name of a graph or of an edit.
        patch: Patches the compiled graph.
        demands: Whether the model demands thinking in the turn that runs, as Claude 4 does.
            Such a model does not bind it. Default: False, it binds it.
        way: How the graph is run, of `WAYS`.
    """
    model = BoundModel(script=[*TURNS], demands=demands, binds=not demands)
    graph = supervisor(model, patch) if case == SUPERVISOR else GRAPHS.get(case, agent)(model)
    graph.checkpointer = InMemorySaver()
    graph = patch(graph)
    found = []
    for number in range(1, 5):
        if number == 3 and case in EDITS:
            edited = EDITS[case](graph.get_state(CONFIG).values["messages"])
            update = {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *edited]}
            graph.update_state(CONFIG, update)
        message = HumanMessage(f"turn {number}")
        found.append(requests(graph, model, message, way, RefusedError))
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for title, demands in (("bound", False), ("demanded in the turn that runs", True)):
        sys.stdout.write(f"| thinking is {title} | bare | patched |\n|---|---|---|\n")
        for case in CASES:
            counts = [turns(case, patch, demands=demands) for patch in (lambda g: g, with_patching)]
            bare, patched = ("".join(map(str, row)).replace("0", "-") for row in counts)
            sys.stdout.write(f"| {case} | {bare} | {patched} |\n")
        sys.stdout.write("\n")
