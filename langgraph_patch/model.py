"""`patch_model`: a chat model that reads a valid history, for places without a node to patch."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
)
from langchain_core.runnables.utils import Output
from langgraph.graph.state import CompiledStateGraph

from langgraph_patch._langgraph.run import Run
from langgraph_patch._sansio import (
    GeneratorRunnable,
    IOGenerator,
    IORequest,
    closed_after,
    method_request,
    opened_stream,
    run_async,
    run_sync,
)
from langgraph_patch._text import short
from langgraph_patch.asking.ask import ask
from langgraph_patch.asking.attempts import Attempts
from langgraph_patch.asking.guard import TruncationGuard
from langgraph_patch.asking.request import Histories, Request
from langgraph_patch.errors import OptionError
from langgraph_patch.history.changes import Patch
from langgraph_patch.history.messages import messages_or_none
from langgraph_patch.history.placeholders import Placeholder
from langgraph_patch.repairing.reconcile import Lookup
from langgraph_patch.repairing.repairer import OnPatch, Recover, Repairer


def patch_model(
    model: Runnable[Any, Output],
    *,
    placeholder: Placeholder | None = None,
    messages_key: str = "messages",
    recover: Recover = True,
    reconcile: Mapping[str, Lookup] | None = None,
    on_patch: OnPatch | None = None,
) -> PatchedModel[Output]:
    """Make a runnable that repairs the history and then calls a chat model with it.

    Use it where no node of a graph can be patched: in nodes that trim the history before they call
    the model (`trim_messages`, `state["messages"][-8:]`), in `@entrypoint` functions, in loops
    written by hand. The state is not written, so the repair is made again at each call.

    A tool call that was cut off is left in `invalid_tool_calls`. If the answer has no other call
    and no text that answers, the model is asked once more: `invoke` returns the second answer. If
    that is no better, a loop of your own may go on while
    `answer.tool_calls or answer.invalid_tool_calls`; limit how often. `stream` does not ask again;
    a loop that merges its chunks uses `message_from_stream`.

    If the provider refuses the history (status 400 or 422), it is repaired for the request, and the
    model asked again, `invoke` and `stream` alike; nothing of the node is repeated. See
    https://github.com/langgraph-patch/langgraph-patch/blob/main/docs/pages/refused.md.

    `bind_tools`, `with_structured_output`, `bind`, `with_config` and `with_retry` work as on the
    model. The result is no `BaseChatModel`: for agents that need one (`create_react_agent` with
    `response_format`, `SummarizationMiddleware`), use `with_patching` or
    `PatchToolCallsMiddleware` on the agent instead.

    Args:
        model: A chat model, or what `bind_tools`, `with_structured_output`, `with_retry`,
            `with_fallbacks` or `with_config` made of one. It is not changed.
        placeholder: The text of the tool message for a call without a result: one text for all
            calls, a mapping from cause to text, or a callable that takes a `DanglingCall` and
            returns a text or a `ToolMessage`. `{name}` and `{id}` in a text are replaced. Default:
            a text that names the cause.
        messages_key: The state key under which the checkpointer stores the history; used where
            results are recovered. Default: `"messages"`.
        recover: Whether recorded results are read from the checkpointer of the run, where the
            model is called inside a graph with one. If it cannot be read, a WARNING reports it;
            with `"required"` an `EvidenceError` is raised, also if there is no checkpointer.
            Default: True.
        reconcile: For each tool name a function that takes a `DanglingCall` and returns the
            result of the call as a `ToolMessage` or a text, or None if it does not know. It is
            asked about calls of which no outcome is recorded (`unknown`, `cancelled`,
            `awaiting_input`). It may be asynchronous if the run is. If it raises, a WARNING
            reports it and the call stays as it was. Default: None.
        on_patch: Called with the patch and the config of the run for each repair. Default: None.

    Returns:
        The runnable; `model` itself if it is patched already.

    Raises:
        OptionError: If `model` is no chat model and not made of one, or an option is none of the
            values that it may have.

    Examples:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> from langgraph_patch import patch_model
        >>> repairs = []
        >>> model = FakeListChatModel(responses=["hello"])
        >>> patched = patch_model(model, on_patch=lambda patch, config: repairs.append(str(patch)))
        >>> call = {"name": "wire", "args": {}, "id": "c1"}
        >>> patched.invoke([AIMessage("", tool_calls=[call]), HumanMessage("never mind")]).content
        'hello'
        >>> repairs
        ["inserted 'wire' 'c1' (unknown)"]
    """
    repairer = Repairer(
        placeholder=placeholder,
        messages_key=messages_key,
        recover=recover,
        reconcile=reconcile,
        on_patch=on_patch,
    )
    if isinstance(model, PatchedModel):
        return model
    if not _reads_messages(model):
        raise OptionError(
            f"model={short(model, 60)} is a {type(model).__name__}: expected a chat model, or what "
            f"bind_tools, with_structured_output, with_retry or with_config made of one. "
            f"{_remedy_for(model)}."
        )
    return PatchedModel(model, repairer)


_HISTORY = "messages"
"""The key of the history of an input, in what is sent after a refusal."""


def _reads_messages(model: object) -> bool:
    """Whether a runnable is a chat model, or passes its input to one.

    A sequence passes it to its first step; `bound` and `runnable` are what `bind`, `with_retry`
    and `with_fallbacks` were called on.
    """
    while isinstance(model, Runnable) and not hasattr(type(model), "bind_tools"):
        inner = (getattr(model, name, None) for name in ("first", "bound", "runnable"))
        model = next((each for each in inner if each is not None), None)
    return isinstance(model, Runnable)


class PatchedModel(GeneratorRunnable[Any, Output]):
    """What `patch_model` returns. It adds no run to traces.

    Args:
        model: The chat model, or a runnable made of one.
        repairer: Repairs its input.
    """

    def __init__(self, model: Runnable[Any, Output], repairer: Repairer) -> None:
        self.name = model.get_name()
        self._model, self._repairer = model, repairer

    def __repr__(self) -> str:
        return f"patch_model({self._model!r})"

    def run(
        self, input: LanguageModelInput, config: RunnableConfig, **kwargs: Any
    ) -> IOGenerator[Any]:
        """Call the model with a valid history; no truncated call is left in its answer."""
        return self._asked(input, config, kwargs)

    def _asked(
        self,
        input: LanguageModelInput,
        config: RunnableConfig,
        kwargs: Mapping[str, Any],
        *,
        is_streamed: bool = False,
    ) -> IOGenerator[Any]:
        """The answer to a valid history, or the first chunk of it, if there is one, and the others.

        A refusal comes before the first chunk.
        """
        run = Run.current()
        messages = _messages_of(input)
        if messages is not None:
            repaired = yield from self._repairer.repaired(messages, run, report=True)
            input = input if repaired is messages else repaired
        request = _ModelRequest(
            run, {_HISTORY: self._repairer}, self._model, input, config, kwargs, is_streamed
        )
        return (yield from ask(Attempts(request)))

    def stream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[Any]:
        """Stream the answer to a valid history. Its chunks are those of the model."""
        first, chunks = run_sync(self._asked(input, config or {}, kwargs, is_streamed=True))
        yield from first
        yield from chunks

    async def astream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[Any]:
        """Do the same as `stream`, asynchronously."""
        first, chunks = await run_async(self._asked(input, config or {}, kwargs, is_streamed=True))
        async with closed_after(chunks):
            for chunk in first:
                yield chunk
            async for chunk in chunks:
                yield chunk

    def bind_tools(self, *args: Any, **kwargs: Any) -> PatchedModel[AIMessage]:
        """Do what the method of the model does, and patch the result."""
        return self._remade("bind_tools", *args, **kwargs)

    def with_structured_output(self, *args: Any, **kwargs: Any) -> PatchedModel[Any]:
        """Do what the method of the model does, and patch the result."""
        return self._remade("with_structured_output", *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"patch_model(model) has no attribute {name!r}: it is no chat model. Take it from the "
            f"model itself; if an agent asks for it, give the agent the model itself and use "
            f"with_patching(agent) or PatchToolCallsMiddleware()."
        )

    def _remade(self, method: str, *args: Any, **kwargs: Any) -> PatchedModel[Any]:
        return PatchedModel(getattr(self._model, method)(*args, **kwargs), self._repairer)


def _messages_of(input: LanguageModelInput) -> list[BaseMessage] | None:
    """The messages of an input; None if it is a text, or nothing that a model accepts."""
    if isinstance(input, PromptValue):
        return input.to_messages()
    return messages_or_none(input)


@dataclass(slots=True)
class _ModelRequest(Request):
    """The request of `patch_model`: the model is called with an input.

    Attributes:
        model: The model.
        input: The input.
        run_config: The config of the request.
        kwargs: Its other arguments.
        is_streamed: Whether the output is the first chunk of a stream, and the others.
    """

    model: Runnable[Any, Any]
    input: LanguageModelInput
    run_config: RunnableConfig
    kwargs: Mapping[str, Any]
    is_streamed: bool = False

    @property
    def asks(self) -> tuple[object, ...]:
        """The model."""
        return self.model, self.kwargs

    def histories(self) -> Histories:
        """The history in the input; none in a text."""
        messages = _messages_of(self.input)
        return {} if messages is None else {_HISTORY: messages}

    def with_histories(self, histories: Histories) -> _ModelRequest:
        """The input with another history. Its request is a run of its own."""
        run_config: RunnableConfig = {**self.run_config, "run_id": None}
        return replace(self, input=histories.get(_HISTORY, self.input), run_config=run_config)

    def guard(self) -> TruncationGuard | None:
        """A guard; none for a stream, whose chunks go to the application."""
        return None if self.is_streamed else TruncationGuard(self.run, of_request=True)

    def send(self) -> IORequest:
        """Call the model."""
        arguments = self.input, self.run_config
        if self.is_streamed:
            return opened_stream(self.model, *arguments, **self.kwargs)
        return method_request(self.model, "invoke", *arguments, **self.kwargs)

    def message(self, output: Any) -> Any:
        """The answer."""
        return output

    def closed(self, output: Any, message: AIMessage) -> Histories:  # noqa: ARG002 - for others
        """The history behind the answer."""
        text = [HumanMessage(self.input)] if isinstance(self.input, str) else []
        history = text or self.histories().get(_HISTORY, [])
        return {_HISTORY: self.repairers[_HISTORY].closed([*history, message]).messages}

    def report(self, patches: Iterable[Patch]) -> None:
        """Call `on_patch`: nothing stores the repair."""
        for patch in patches:
            self.repairers[_HISTORY].notify(patch, self.run)


def _remedy_for(model: object) -> str:
    """What to do with something that is no chat model."""
    if isinstance(model, str):
        return f"A name of one becomes a model with LangChain's init_chat_model({short(model, 60)})"
    if isinstance(model, CompiledStateGraph):
        return "A graph is patched by with_patching"
    return "In a sequence `prompt | model` patch the model: `prompt | patch_model(model)`"
