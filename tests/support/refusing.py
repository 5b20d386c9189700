"""A model whose provider refuses histories by a rule, and the places in which it is asked again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START
from pydantic import Field

from kit import Desk, loop
from langgraph_patch import patch_model, with_patching
from langgraph_patch.middleware import PatchToolCallsMiddleware


class RefusedError(Exception):
    """What an SDK raises for status 400."""

    status_code = 400


class RefusingModel(BaseChatModel):
    """Says its script line by line, and then `done`, unless the rule names a reason to refuse.

    Attributes:
        rule: Returns why a history is refused, or None; or raises another error.
        script: Its answers.
        seen: The histories of its requests.
    """

    rule: Callable[[list[BaseMessage]], str | None]
    script: list[AIMessage] = Field(default_factory=list)
    seen: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "refusing"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        """Bind nothing."""
        return self

    def _answer(self, messages: list[BaseMessage]) -> AIMessage:
        self.seen.append(list(messages))
        if reason := self.rule(messages):
            raise RefusedError(reason)
        return self.script.pop(0).model_copy() if self.script else AIMessage("done")

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> Iterator[ChatGenerationChunk]:
        answer = self._answer(messages)
        message = AIMessageChunk(answer.content, tool_calls=answer.tool_calls)
        yield ChatGenerationChunk(message=message)


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


def requests(place: str, rule: Callable[..., str | None], history: list[Any]) -> list[int]:
    """How many requests each of three turns took; 0 for a turn that was refused."""
    model = RefusingModel(rule=rule)
    graph = PLACES[place](model, Desk().tools(), checkpointer=InMemorySaver())
    graph.update_state(CONFIG, {"messages": history[:-1]}, as_node=START)
    counts = []
    for message in (history[-1], HumanMessage("Then?"), HumanMessage("And then?")):
        before = len(model.seen)
        try:
            graph.invoke({"messages": [message]}, CONFIG)
        except Exception:  # noqa: BLE001 - whatever the integration raises, the turn is refused
            counts.append(0)
        else:
            counts.append(len(model.seen) - before)
    return counts


CONFIG: Any = {"configurable": {"thread_id": "t"}}
