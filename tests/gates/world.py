"""What gates meet: refusals, tools with a ledger, ways to ask, and what a gate adds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command, interrupt

from kit import StrictModel, calls, tool_of
from langgraph_patch.testing.model import RefusedError

# --- what providers refuse ------------------------------------------------------------------


def open_ids(messages: Sequence[BaseMessage]) -> list[str]:
    """The ids of calls that have no result right behind their message."""
    waiting, left = list[str](), list[str]()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id in waiting:
                waiting.remove(message.tool_call_id)
            else:
                left.append(f"{message.tool_call_id} without a call")
            continue
        left, waiting = [*left, *waiting], []
        if isinstance(message, AIMessage):
            waiting = [str(c["id"]) for c in (*message.tool_calls, *message.invalid_tool_calls)]
    return [*left, *waiting]


def _blocks(messages: Sequence[BaseMessage], kind: str) -> bool:
    blocks = (block for message in messages for block in message.content)
    return any(isinstance(block, dict) and block.get("type") == kind for block in blocks)


def _says_nothing(message: BaseMessage) -> bool:
    is_called = isinstance(message, AIMessage) and bool(message.tool_calls)
    return message.type == "ai" and not is_called and not message.text.strip()


PICTURE = [{"type": "image", "base64": "aGk=", "mime_type": "image/png"}]
THINKING = [
    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
    {"type": "text", "text": "It rains."},
]
CLAUDE = {"model_provider": "anthropic", "model_name": "claude-sonnet-4-6"}


class Refusal(NamedTuple):
    """What a provider refuses: an old turn, what of it, and the text of the refusal."""

    old: tuple[BaseMessage, BaseMessage]
    has: Callable[[Sequence[BaseMessage]], bool]
    text: str


_OLD = HumanMessage("Rain?", id="h0"), AIMessage("It rains.", id="a0")
_EMPTY = HumanMessage("Rain?", id="h0"), AIMessage("", id="a0")
_EMPTY_TEXT = "messages.1: Assistant message must have either content or tool_calls"
_OPEN_TEXT = "`tool_use` ids were found without `tool_result` blocks immediately after: {}"


def _has_nothing(messages: Sequence[BaseMessage]) -> bool:
    return any(map(_says_nothing, messages))


REFUSALS = {
    "picture": Refusal(
        (HumanMessage(PICTURE, id="h0"), _OLD[1]),
        partial(_blocks, kind="image"),
        "messages.0.content.0: Could not process image",
    ),
    "empty": Refusal(_EMPTY, _has_nothing, _EMPTY_TEXT),
    "thinking": Refusal(
        (_OLD[0], AIMessage(THINKING, id="a0", response_metadata=CLAUDE)),
        partial(_blocks, kind="thinking"),
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    "open call": Refusal(_OLD, lambda messages: bool(open_ids(messages)), _OPEN_TEXT),
    "unknown text": Refusal(_EMPTY, _has_nothing, "Bad request."),
    # more than the five of the table
    "no text": Refusal(_EMPTY, _has_nothing, ""),
    "hopeless": Refusal(_OLD, lambda _: True, "Bad request."),
    "hopeless picture": Refusal(
        (HumanMessage(PICTURE, id="h0"), _OLD[1]), lambda _: True, "Could not process image"
    ),
    "no pictures": Refusal(
        (HumanMessage(PICTURE, id="h0"), _OLD[1]),
        partial(_blocks, kind="image"),
        "image_url is only supported by certain models",
    ),
    "nothing": Refusal(_EMPTY, lambda _: False, ""),
}
TABLE = ("picture", "empty", "thinking", "open call", "unknown text")

MODELS = ("lenient", "strict", "again", "fallback")
"""None refuses open calls, or all do; none does, and the agent's makes a call without a result
again; all do, and a judge has another model behind it, which refuses nothing."""

# --- the world --------------------------------------------------------------------------------


class OwnError(Exception):
    """What a gate raises in place of a refusal."""


@dataclass
class World:
    """One thread: what its tools did and what its models read.

    Attributes:
        refusal: What the judge refuses.
        models: What is known of all models, one of `MODELS`.
        approval: Who asks a human: "", "tool", "node"; or the gate, if the message at which it
            looks (`LOOKS`) has calls.
        manner: How the gate asks, a key of `MANNERS`.
        returns: What the gate adds, a key of `RETURNS`.
        done: For each call what became of it, in order: "start", "paid", "declined".
        read: What each model read, with the number of entries of `done` before.
    """

    refusal: Refusal
    models: str = "lenient"
    approval: str = ""
    manner: str = "plain"
    returns: str = "verdict"
    done: list[tuple[str, str]] = field(default_factory=list)
    read: list[tuple[str, int, list[BaseMessage]]] = field(default_factory=list)
    requests: int = 0

    def model(
        self, name: str, script: Callable[[list[BaseMessage]], Any], *, takes_all: bool = False
    ) -> StrictModel:
        """A model that says what the script makes of each history that it accepts."""

        def refuses(messages: list[BaseMessage]) -> None:
            if takes_all:
                return
            if self.models in {"strict", "fallback"} and (ids := open_ids(messages)):
                raise RefusedError(_OPEN_TEXT.format(ids), 400)
            if name == "main":
                return
            self.requests += 1
            if self.manner == "in turn" and self.requests % 2 == 0:
                return
            if self.refusal.has(messages):
                raise RefusedError(self.refusal.text.format(open_ids(messages)), 400)

        def say(messages: list[BaseMessage]) -> Any:
            self.read.append((name, len(self.done), list(messages)))
            return script(messages)

        return StrictModel(*[say] * 60, refuses=refuses)

    def main(self) -> StrictModel:
        """The model that calls the tools: it pays and looks when it is told to, once."""

        def reply(messages: list[BaseMessage]) -> Any:
            told = [n for n, m in enumerate(messages) if str(m.text).startswith("pay ")]
            since = messages[told[-1] if told else 0 :]
            if not told:
                return "Done."
            if any(isinstance(m, AIMessage) for m in since):
                return self._again(since) or "Done."
            amount = int(since[0].text.split()[1])
            return calls(("pay", {"amount": amount}), ("look", {"amount": amount}), first=amount)

        return self.model("main", reply)

    def _again(self, since: list[BaseMessage]) -> Any:
        """The calls of this turn that have no result, if the model makes them again."""
        have = {m.tool_call_id for m in since if isinstance(m, ToolMessage)}
        made = [call for m in since for call in getattr(m, "tool_calls", ())]
        lacking = [(c["name"], c["args"]) for c in made if c["id"] not in have]
        does_again = self.models == "again" and lacking
        return calls(*lacking, first=100 * len(made)) if does_again else None

    def judge(self) -> Any:
        """A model that finds everything safe, or another one behind it does."""
        judge, other = (
            self.model("judge", lambda _: "safe", takes_all=each) for each in (False, True)
        )
        return judge.with_fallbacks([other]) if self.models == "fallback" else judge

    def tools(self) -> list[BaseTool]:
        """`pay`, which may ask a human, and `look`."""

        def pay(amount: int) -> str:
            """Pay."""
            call_id = f"c{amount}"
            if self.approval == "tool":
                self.done.append((call_id, "asked"))
                if interrupt(f"pay {amount}?") != "yes":
                    self.done.append((call_id, "declined"))
                    return "declined"
            self.done.append((call_id, "paid"))
            return f"paid {amount}"

        def look(amount: int) -> str:
            """Look."""
            self.done.append((f"c{amount + 1}", "looked"))
            return f"looked {amount}"

        return [tool_of(pay), tool_of(look)]


def answer_to(pause: Any, text: str) -> Any:
    """The answer "yes" or "no" to a tool, or as a middleware wants it."""
    if not isinstance(pause.value, dict):
        return text
    kind = {"type": "approve" if text == "yes" else "reject"}
    return {"decisions": [kind for _ in pause.value["action_requests"]]}


def last_calls(messages: Sequence[BaseMessage]) -> list[Any]:
    """The calls of the last message."""
    return list(getattr(messages[-1], "tool_calls", None) or [])


def newest_calls(messages: Sequence[BaseMessage]) -> list[Any]:
    """The calls of the newest message of a model."""
    return next((m.tool_calls for m in reversed(messages) if isinstance(m, AIMessage)), [])


LOOKS: dict[str, Callable[[list[BaseMessage]], list[Any]]] = {
    "gate": last_calls,
    "gate, newest": newest_calls,
    "gate, copy": lambda messages: last_calls([*messages]),
    "gate, slice": lambda messages: last_calls(messages[-1:]),
}
"""How a gate looks for calls before it asks a human."""

# --- how a gate asks ---------------------------------------------------------------------------

QUESTION = HumanMessage("Is the call safe?", id="question")


def _plain(judge: Any, messages: list[BaseMessage]) -> str:
    return judge.invoke([*messages, QUESTION]).text


def _reads_calls(judge: Any, messages: list[BaseMessage]) -> str:
    made = messages[-1].tool_calls  # the code of an application: it knows what is before it
    return judge.invoke([*messages, HumanMessage(f"Is {made} safe?")]).text


def _reads_calls_behind(judge: Any, messages: list[BaseMessage]) -> str:
    verdict = _plain(judge, messages)
    return verdict if messages[-1].tool_calls else "unsafe"


def _if_last_calls(judge: Any, messages: list[BaseMessage]) -> str:
    return _plain(judge, messages) if last_calls(messages) else "safe"


def _at_the_end(judge: Any, messages: list[BaseMessage]) -> str:
    return judge.invoke(messages).text


def _raises_its_own(judge: Any, messages: list[BaseMessage]) -> str:
    try:
        return _plain(judge, messages)
    except RefusedError as error:
        raise OwnError("the judge is not there") from error


def _raises_another(judge: Any, messages: list[BaseMessage]) -> str:
    try:
        return _plain(judge, messages)
    except RefusedError:
        pass
    raise OwnError("the judge is not there")


def _safe_by_default(judge: Any, messages: list[BaseMessage]) -> str:
    try:
        return _plain(judge, messages)
    except RefusedError:
        return "safe"


def _unsafe_by_default(judge: Any, messages: list[BaseMessage]) -> str:
    try:
        return _plain(judge, messages)
    except RefusedError:
        return "unsafe"


def _twice(judge: Any, messages: list[BaseMessage]) -> str:
    _plain(judge, messages)
    return _at_the_end(judge, messages)


def _batch(judge: Any, messages: list[BaseMessage]) -> str:
    one, other = judge.batch([[*messages, QUESTION], [*messages, QUESTION, QUESTION]])
    return one.text and other.text


MANNERS: dict[str, Callable[[Any, list[BaseMessage]], str]] = {
    "plain": _plain,
    "in turn": _plain,
    "reads calls": _reads_calls,
    "reads calls behind": _reads_calls_behind,
    "if last calls": _if_last_calls,
    "at the end": _at_the_end,
    "raises its own": _raises_its_own,
    "raises another": _raises_another,
    "safe by default": _safe_by_default,
    "unsafe by default": _unsafe_by_default,
    "twice": _twice,
    "batch": _batch,
}

# --- what it adds ------------------------------------------------------------------------------


def _by_id_again(messages: list[BaseMessage]) -> list[BaseMessage]:
    newest = next(m for m in reversed(messages) if isinstance(m, AIMessage))
    return [newest.model_copy()]


def _smaller(messages: list[BaseMessage]) -> list[BaseMessage]:
    """The message of the model with less text, under its id."""
    newest = next(m for m in reversed(messages) if isinstance(m, AIMessage))
    return [newest.model_copy(update={"additional_kwargs": {"checked": True}})]


def _removed(messages: list[BaseMessage]) -> list[RemoveMessage]:
    """Removals of the old turn."""
    return [RemoveMessage(id=m.id) for m in messages if m.id in {"h0", "a0"}]


RETURNS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "verdict": lambda _: {},
    "none": lambda _: None,
    "all": lambda s: {"messages": s["messages"]},
    "copies": lambda s: {"messages": [m.model_copy() for m in s["messages"]]},
    "last": lambda s: {"messages": s["messages"][-1:]},
    "last ai": lambda s: {"messages": _by_id_again(s["messages"])},
    "changed ai": lambda s: {"messages": _smaller(s["messages"])},
    "human": lambda _: {"messages": [HumanMessage("checked")]},
    "remove": lambda s: {"messages": _removed(s["messages"])},
    "ai": lambda _: {"messages": [AIMessage("checked")]},
    "command": lambda _: Command(update={}),
    "command all": lambda s: Command(update={"messages": s["messages"]}),
    "list": lambda s: [{"messages": s["messages"][-1:]}, Command(update={})],
    "state": lambda s: {k: v for k, v in s.items() if k in {"messages", "verdict"}},
}
"""What is returned beside the verdict. `append` and `append ai` change the list in place."""


def returned(world: World, state: dict[str, Any], verdict: str, key: str = "verdict") -> Any:
    """What the gate returns; `key`: where its verdict is stored."""
    if world.returns.startswith("append"):
        is_ai = world.returns == "append ai"
        state["messages"].append(AIMessage("checked") if is_ai else HumanMessage("checked"))
        return {**state, key: verdict}
    made = RETURNS[world.returns](state)
    match made:
        case dict():
            return {**made, key: verdict}
        case Command():
            return Command(update={**made.update, key: verdict})
        case list():
            return [{**made[0], key: verdict}, *made[1:]]
    return made


def ask(world: World, judge: Any, messages: list[BaseMessage]) -> str:
    """Ask the judge, and then a human if the gate does."""
    verdict = MANNERS[world.manner](judge, messages)
    calls_of = LOOKS.get(world.approval)
    if calls_of is not None and calls_of(messages):
        verdict = "safe" if interrupt("May it?") == "yes" else "unsafe"
    return verdict
