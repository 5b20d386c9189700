"""A chat model that repairs its input just before it is sent and never completes truncated calls.

The model gets a subclass of its own class, made once for each class, so that it stays what it was
for `bind_tools`, structured output, retries, caches, events and `isinstance`. Only methods that
the class defines itself are overridden: LangChain compares the inherited ones by identity.

A call that the model did not finish writing gets one more chunk, which makes its arguments invalid
for LangChain's partial JSON parser. Whoever merges the chunks (`invoke`, a node, a client) then
finds it in `invalid_tool_calls`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import cache, wraps
from typing import Any, TypeVar, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import Runnable, RunnableSerializable
from langgraph.checkpoint.base import BaseCheckpointSaver
from pydantic import PrivateAttr

from langgraph_patch._langgraph import current_config
from langgraph_patch._sansio import IOGenerator, run_async, run_sync
from langgraph_patch.errors import OptionError
from langgraph_patch.evidence.reconcile import Lookup
from langgraph_patch.graph.apply_repair import repaired_for_model
from langgraph_patch.graph.repairer import OnPatch, Recover, Repairer
from langgraph_patch.graph.stream_end import StreamEnd
from langgraph_patch.history.placeholders import Language, Placeholder

ModelT = TypeVar("ModelT", bound=Runnable[Any, Any])


def patch_model(
    model: ModelT,
    *,
    placeholder: Placeholder | None = None,
    language: Language | None = None,
    messages_key: str = "messages",
    recover: Recover = True,
    replace_foreign: bool = False,
    checkpointer: BaseCheckpointSaver[Any] | None = None,
    reconcile: Mapping[str, Lookup] | None = None,
    on_patch: OnPatch | None = None,
) -> ModelT:
    """Make a chat model that accepts every tool-call history and completes no truncated call.

    Use it where no node of a graph can be patched: in `@entrypoint` functions, in loops written by
    hand, in nodes that trim the history before they call the model. Its input is repaired just
    before it is sent. The state is not written, so the repair is made again at each call.

    A tool call that the model did not finish writing (token limit, broken connection) is left
    in `invalid_tool_calls`; LangChain alone would complete it, and an agent would run it. At the
    next call the model reads that the tool call was malformed.

    If no complete call is left, `with_patching` and the middleware ask the model once more.
    `patch_model` does not: a model returns one message, so the second answer would replace the
    first one, with its text and its token usage, and refer to a call that the history does not
    have. The chunks of a stream have been sent already. A loop of your own asks again if it goes
    on while `answer.tool_calls or answer.invalid_tool_calls`; limit how often.

    `create_react_agent` validates the history before it calls the model: use `with_patching` too.
    `configurable_fields` makes a new model of the same class, which has the default options.
    A model inside of a function, such as a `RunnableLambda`, cannot be found: patch it there.

    Args:
        model: A chat model, or a runnable that `bind_tools`, `with_structured_output`,
            `with_retry`, `with_fallbacks` or `with_config` made of one, or a sequence that
            contains one. It is not changed.
        placeholder: The text for a call without a result: one text, a mapping from cause to text,
            or a callable that takes a `DanglingCall`. Default: a text per cause.
        language: `"en"` or `"zh"`. Default: the language of the process.
        messages_key: The state key under which the checkpointer stores the history; used where
            results are recovered. Default: `"messages"`.
        recover: Whether recorded results are read from the checkpointer of the run, where the
            model is called inside a graph with one. If it cannot be read, a WARNING reports it;
            with `"required"` an `EvidenceError` is raised. Default: True.
        replace_foreign: Whether placeholders of deepagents and langgraph-checkpoint-aws are
            replaced too. Default: False.
        checkpointer: The checkpointer to read. Default: that of the run.
        reconcile: For each tool name a function that takes a `DanglingCall` and returns the
            result of the call as a `ToolMessage` or a text, or None if it does not know. It is
            asked about calls of which no outcome is recorded (`unknown`, `cancelled`,
            `awaiting_input`). It may be asynchronous if the run is. If it raises, a WARNING
            reports it and the call stays as it was. Default: None.
        on_patch: Called with the patch and the config of the run for each repair. Default: None.

    Returns:
        A copy of `model` of the same kind; `model` itself if it is patched already.

    Raises:
        OptionError: If `model` contains no chat model, is a configurable model of
            `init_chat_model`, or an option is none of the values that it may have.

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
        language=language,
        messages_key=messages_key,
        recover=recover,
        replace_foreign=replace_foreign,
        checkpointer=checkpointer,
        reconcile=reconcile,
        on_patch=on_patch,
    )
    if not isinstance(model, Runnable):
        raise _no_model_error(model)
    patched, found = _patched(model, repairer)
    if not found:
        raise _no_model_error(model)
    return cast("ModelT", patched)


def _no_model_error(model: object) -> OptionError:
    kind = type(model).__name__
    if kind == "_ConfigurableModel":
        return OptionError(
            "A configurable model of init_chat_model makes its model at each call: patch that "
            "model instead, patch_model(init_chat_model(<name>)), or use with_patching on the "
            "graph that calls it."
        )
    return OptionError(
        f"{model!r:.200} is a {kind} that contains no chat model: expected a BaseChatModel, or a "
        f"runnable that bind_tools, with_retry, with_fallbacks, ... made of one."
    )


def _patched(model: Runnable[Any, Any], repairer: Repairer) -> tuple[Runnable[Any, Any], bool]:
    """The runnable with every chat model in it patched, and whether there is one."""
    if isinstance(model, BaseChatModel):
        return (
            model if _is_patched(model) else _of_class(model, _class_for(type(model)), repairer)
        ), True
    if type(model).__name__ == "_ConfigurableModel":
        raise _no_model_error(model)
    if not isinstance(model, RunnableSerializable):
        return model, False
    update, found = {}, False
    for field in type(model).model_fields:
        value = getattr(model, field)
        new, found_here = _patched_value(value, repairer)
        found = found or found_here
        if new is not value:
            update[field] = new
    return (model.model_copy(update=update) if update else model), found


def _patched_value(value: Any, repairer: Repairer) -> tuple[Any, bool]:
    """The same for a field: a runnable, or a list, a tuple or a mapping of runnables."""
    if isinstance(value, Runnable):
        return _patched(value, repairer)
    if isinstance(value, dict):
        pairs = {key: _patched_value(part, repairer) for key, part in value.items()}
        changed = any(pairs[key][0] is not part for key, part in value.items())
        new: Any = {key: part for key, (part, _) in pairs.items()} if changed else value
        return new, any(found for _, found in pairs.values())
    if type(value) in (list, tuple):
        parts = [_patched_value(part, repairer) for part in value]
        changed = any(new is not part for (new, _), part in zip(parts, value, strict=True))
        new = type(value)(part for part, _ in parts) if changed else value
        return new, any(found for _, found in parts)
    return value, False


# --- the class ---------------------------------------------------------------------------


def _is_patched(model: BaseChatModel) -> bool:
    return hasattr(type(model), "__langgraph_patch_base__")


def _of_class(
    model: BaseChatModel, kind: type[BaseChatModel], repairer: Repairer | None
) -> BaseChatModel:
    """A copy of `model` that is an instance of `kind`, with the options of `repairer`."""
    copied = model.model_copy()
    private = dict(copied.__pydantic_private__ or {})
    private.pop("_langgraph_patch", None)
    if repairer is not None:
        private["_langgraph_patch"] = repairer
    object.__setattr__(copied, "__class__", kind)
    object.__setattr__(copied, "__pydantic_private__", private or None)
    return copied


@cache
def _class_for(base: type[BaseChatModel]) -> type[BaseChatModel]:
    """The subclass of a model class; it has its name, since caches and events use the name."""
    namespace: dict[str, Any] = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__langgraph_patch_base__": base,
        "__reduce_ex__": _reduce,
        "_langgraph_patch": PrivateAttr(default_factory=Repairer),
    }
    for name, override in _OVERRIDES.items():
        method = getattr(base, name, None)
        if method is not None and method is not getattr(BaseChatModel, name, None):
            namespace[name] = override(method)
    make: Any = type(base)  # pydantic's metaclass
    return cast("type[BaseChatModel]", make(base.__name__, (base,), namespace))


def _reduce(self: BaseChatModel, _protocol: object) -> tuple[Any, ...]:
    base: type[BaseChatModel] = cast("Any", type(self)).__langgraph_patch_base__
    original = _of_class(self, base, None)
    return _unpickled, (original, _repairer_of(self))


def _unpickled(original: BaseChatModel, repairer: Repairer) -> BaseChatModel:
    return _of_class(original, _class_for(type(original)), repairer)


def _repairer_of(model: BaseChatModel) -> Repairer:
    return cast("Repairer", cast("Any", model)._langgraph_patch)  # noqa: SLF001 - its own field


# --- its methods -------------------------------------------------------------------------


def _repaired(model: BaseChatModel, messages: list[BaseMessage]) -> IOGenerator[list[BaseMessage]]:
    return repaired_for_model(_repairer_of(model), messages, current_config())


def _generate(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def generate(
        self: BaseChatModel, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> Any:
        return method(self, run_sync(_repaired(self, messages)), *args, **kwargs)

    return generate


def _agenerate(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def agenerate(
        self: BaseChatModel, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> Any:
        return await method(self, await run_async(_repaired(self, messages)), *args, **kwargs)

    return agenerate


def _events(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def events(
        self: BaseChatModel, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> Iterator[Any]:
        yield from method(self, run_sync(_repaired(self, messages)), *args, **kwargs)

    return events


def _aevents(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def aevents(
        self: BaseChatModel, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        repaired = await run_async(_repaired(self, messages))
        async for event in method(self, repaired, *args, **kwargs):
            yield event

    return aevents


def _stream(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def stream(
        self: BaseChatModel, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        ending = StreamEnd()
        try:
            for chunk in method(self, run_sync(_repaired(self, messages)), *args, **kwargs):
                yield from ending.passed(chunk)
        except Exception:  # any: a caller may keep the chunks that came before it
            yield from ending.chunks(failed=True)
            raise
        yield from ending.chunks(failed=False)

    return stream


def _astream(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def astream(
        self: BaseChatModel, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        ending = StreamEnd()
        repaired = await run_async(_repaired(self, messages))
        try:
            async for chunk in method(self, repaired, *args, **kwargs):
                for passed in ending.passed(chunk):
                    yield passed
        except Exception:  # any: a caller may keep the chunks that came before it
            for last in ending.chunks(failed=True):
                yield last
            raise
        for last in ending.chunks(failed=False):
            yield last

    return astream


_OVERRIDES: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "_generate": _generate,
    "_agenerate": _agenerate,
    "_stream": _stream,
    "_astream": _astream,
    "_stream_chat_model_events": _events,
    "_astream_chat_model_events": _aevents,
}
