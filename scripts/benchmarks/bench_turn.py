"""What one turn costs, bare and patched: in a long thread, streamed, and after damage."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Any

import httpx
from langchain.agents import create_agent
from langchain_core.callbacks import BaseCallbackHandler, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, FakeMessagesListChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from measuring import Row, compared, history, in_turns, spent
from pydantic import SecretStr

from kit import Desk, calls, loop
from langgraph_patch import with_patching

Variant = Callable[..., Any]
"""Makes what is measured, bare or patched: it has `spent`, the CPU seconds of one turn."""

_MODEL = FakeMessagesListChatModel(responses=[])
GRAPHS: dict[str, Callable[[], Any]] = {
    "a graph of two nodes": lambda: loop(_MODEL, Desk().tools()).compile(),
    "create_agent": lambda: create_agent(_MODEL, Desk().tools()),
}
"""What a server's factory makes for each request."""

ROUNDS = 10
"""The rounds of tools in a long turn."""


class Counted(SqliteSaver):
    """A database in memory that counts its queries."""

    def __init__(self) -> None:
        super().__init__(sqlite3.connect(":memory:", check_same_thread=False))
        self.used = Counter[str]()

    def get_tuple(self, config: Any) -> Any:
        """Read a checkpoint."""
        self.used["queries"] += 1
        return super().get_tuple(config)

    def list(self, *args: Any, **options: Any) -> Iterator[Any]:
        """Read several."""
        self.used["queries"] += 1
        return super().list(*args, **options)


class Turns:
    """Turns of an agent, each in a thread of its own with the same history.

    Args:
        messages: The history.
        rounds: The rounds of tools in a turn.
        patched: Whether the agent is patched.
        damaged: Whether a run has stopped in two calls, one of which has a recorded result.
        options: The options of a run.
    """

    def __init__(
        self,
        messages: Sequence[BaseMessage],
        rounds: int,
        *,
        patched: bool,
        damaged: bool = False,
        **options: Any,
    ) -> None:
        self.saver, self.threads = Counted(), count()
        self.messages, self.rounds, self.options = messages, rounds, options
        self.patched, self.damaged = patched, damaged

    def _graph(self, script: list[Any], *, patched: bool) -> Any:
        model = FakeMessagesListChatModel(responses=script)  # it looks at nothing
        graph = loop(model, Desk().tools()).compile(checkpointer=self.saver)
        return with_patching(graph, record=self.damaged) if patched else graph

    def spent(self) -> float:
        """The CPU seconds of one turn."""
        config: Any = {"configurable": {"thread_id": str(next(self.threads))}}
        made = [calls(("mail", {"to": "bob"}), first=9000 + n, id=f"x{n}") for n in range(ROUNDS)]
        script = [*made[: self.rounds], AIMessage("done", id="x")]
        graph = self._graph(script, patched=self.patched)
        graph.update_state(config, {"messages": self.messages}, as_node="agent")
        if self.damaged:
            both = calls(("mail", {"to": "bob"}), ("wire", {"amount": 5}), first=8000, id="y")
            run = self._graph([both], patched=True)
            run.invoke({"messages": [HumanMessage("pay", id="pay")]}, config)
        value = {"messages": [HumanMessage("go", id="go")]}
        self.saver.used.clear()
        return spent(lambda: deque(graph.stream(value, config, **self.options), 0))


def openai_model(number: int) -> BaseChatModel:
    """The integration of OpenAI: what a chunk costs that is read from a response.

    Args:
        number: The chunks, which a transport in memory sends.
    """
    word = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [{"index": 0, "delta": {"content": "word "}}] * number
    choices += [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    lines = [f"data: {json.dumps({**word, 'choices': [each]})}\n\n" for each in choices]
    sent = "".join([*lines, "data: [DONE]\n\n"]).encode()
    headers = {"content-type": "text/event-stream"}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, headers=headers, content=sent))
    client = httpx.Client(transport=transport)
    return ChatOpenAI(model="m", api_key=SecretStr("none"), http_client=client)


class Words(BaseChatModel):
    """A model that streams words, as fast as a model can: no integration comes near it.

    Attributes:
        number: How many.
    """

    number: int

    @property
    def _llm_type(self) -> str:
        return "words"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    def _stream(
        self,
        messages: list[BaseMessage],  # noqa: ARG002 - LangChain's signature
        stop: list[str] | None = None,  # noqa: ARG002 - as above
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for _each in range(self.number):
            chunk = ChatGenerationChunk(message=AIMessageChunk("word ", id="1"))
            if run_manager:
                run_manager.on_llm_new_token("word ", chunk=chunk)
            yield chunk


class Idle(BaseCallbackHandler):
    """A callback handler that does nothing."""

    ignore_llm = False

    def on_llm_new_token(self, token: Any, **_: Any) -> None:
        """Do nothing with a chunk."""


class Streams:
    """Turns of a node that streams its model.

    Args:
        model: The model.
        mode: The mode of the stream.
        patched: Whether the graph is patched.
        config: The config of the runs.
    """

    def __init__(
        self, model: BaseChatModel, mode: Any, config: Any = None, *, patched: bool
    ) -> None:

        def node(state: MessagesState) -> Any:
            first, *others = model.stream(state["messages"])
            return {"messages": [first + others]}

        graph: Any = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node")
        self.graph = with_patching(graph.compile()) if patched else graph.compile()
        self.mode, self.config = mode, config

    def spent(self) -> float:
        """The CPU seconds of one turn."""
        value = {"messages": [HumanMessage("go")]}
        return spent(lambda: deque(self.graph.stream(value, self.config, stream_mode=self.mode), 0))


def _compared(what: str, rounds: int, most: float, make: Variant) -> Row:
    ways = {name: make(patched=name == "patched").spent for name in ("bare", "patched")}
    return compared(f"{what}, CPU", in_turns(ways, rounds), "patched", "bare", most=most)


def rows(*, quick: bool) -> Iterator[Row]:
    """Ten rounds of tools, one answer in a long and a short thread, streams, a damaged thread."""
    n, size = (1, 20) if quick else (21, 1_000)
    short, long = history(2), history(size // 5)
    turns = partial(Turns, long, ROUNDS, durability="exit")
    yield _compared(f"a turn of {ROUNDS} rounds, {size} messages, durability exit", n, 1.10, turns)
    yield _compared(f"a turn, {size} messages", n, 1.06, partial(Turns, long, 0))
    yield _compared("a turn, 10 messages", n, 1.12, partial(Turns, short, 0))
    for chunks in (30,) if quick else (300, 3_000):
        for mode in ("updates", "values", "custom"):
            make = partial(Streams, openai_model(chunks), mode)
            yield _compared(f"{chunks} chunks of OpenAI's, stream_mode {mode}", n, 1.15, make)
        streams = partial(Streams, Words(number=chunks), "updates")
        ways = {
            "bare": streams(patched=False).spent,
            "idle": streams({"callbacks": [Idle()]}, patched=False).spent,
            "ours": streams(patched=True).spent,
        }
        times, what = in_turns(ways, n), f"{chunks} chunks as fast as a model can"
        yield compared(f"{what}, CPU", times, "ours", "bare")
        yield compared(f"{what}, a callback handler that does nothing, CPU", times, "idle", "bare")
        what = f"{what}, beside a callback handler that does nothing"
        yield compared(f"{what}, CPU", times, "ours", "idle", most=1.1)
    damaged = partial(Turns, long, 0, damaged=True)
    yield _compared(f"a damaged turn, {size} messages", n, 4, damaged)
    for what, make in GRAPHS.items():
        both = {"bare": make, "patched": lambda made=make: with_patching(made())}
        ways = {name: partial(spent, each, 10) for name, each in both.items()}
        yield compared(f"making {what}, CPU", in_turns(ways, n), "patched", "bare", most=2)
    (turn := damaged(patched=True)).spent()
    yield Row("a damaged turn, queries", turn.saver.used["queries"], "{:.0f}", most=6)
