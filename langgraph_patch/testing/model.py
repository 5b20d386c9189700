"""A scripted chat model that refuses what a provider refuses.

The rules are written from those of the providers and share nothing with the repair: a test asks
somebody else whether a repaired history is valid.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import generate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolCall, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import ensure_config
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from langgraph_patch._text import short
from langgraph_patch.errors import OptionError
from langgraph_patch.testing.breaks import spoken

_ID_KEYS = {"tool_use": "id", "tool_call": "id", "function_call": "call_id"}


class RefusedError(ValueError):
    """What the client of a provider raises for a request that the provider refuses.

    Args:
        text: The reason.
        status_code: The status of its answer. Default: 400, as for each reason of `check_request`:
            a patched graph may repair the history and ask again. None is an error that nothing is
            done about.
    """

    def __init__(self, text: str, status_code: int | None = 400) -> None:
        super().__init__(text)
        self.status_code = status_code


def calls(*named: tuple[str, dict[str, Any]], first: int = 1, **fields: Any) -> AIMessage:
    """A message of a model that calls tools; the ids of the calls are `c1`, `c2`, and so on.

    A `StrictModel` says them with the next numbers if there are such calls before, as no provider
    gives an id twice; in an agent inside of another one they begin with `c101`.

    Args:
        *named: For each call the name of the tool and its arguments.
        first: The number in the first id. Default: 1.
        **fields: Other fields of the message.

    Raises:
        OptionError: If a call is anything but a name and arguments.

    Examples:
        >>> from langgraph_patch.testing import calls
        >>> [(call["id"], call["name"]) for call in calls(("mail", {"to": "bob"})).tool_calls]
        [('c1', 'mail')]
    """
    for each in named:
        if not (isinstance(each, tuple) and [*map(type, each)] == [str, dict]):
            raise OptionError(
                f"calls({', '.join(map(short, named))}): expected the name of a tool and its "
                f"arguments for each call, such as calls(('mail', {{'to': 'bob'}}))."
            )
    listed = [
        {"name": name, "args": args, "id": f"c{number}", "type": "tool_call"}
        for number, (name, args) in enumerate(named, first)
    ]
    return AIMessage("", tool_calls=listed, **fields)


def check_request(messages: Sequence[BaseMessage]) -> None:
    """Raise an error for a history that a provider would refuse.

    Each result must directly follow the message of its call, and each call must have one. A message
    of a model must say something or call a tool.

    Args:
        messages: The history.

    Raises:
        RefusedError: With status 400, as of a provider.

    Examples:
        >>> from langchain_core.messages import HumanMessage
        >>> from langgraph_patch.testing import calls, check_request
        >>> check_request([calls(("mail", {"to": "bob"})), HumanMessage("never mind")])
        Traceback (most recent call last):
        langgraph_patch.testing.model.RefusedError: calls ['c1'] have no result right after them
    """
    waiting, is_empty = list[str](), False
    for message in messages:
        is_legacy = message.type == "function" and waiting == [""]
        if isinstance(message, ToolMessage) or is_legacy:
            call_id = getattr(message, "tool_call_id", "")
            if call_id not in waiting:
                raise RefusedError(f"result {call_id!r} answers no call before it")
            waiting.remove(call_id)
            continue
        if waiting:
            raise RefusedError(f"calls {waiting} have no result right after them")
        if message.type in {"function", "chat"} and getattr(message, "role", "") != "user":
            raise RefusedError(f"role {message.type!r} is not accepted")
        if isinstance(message, AIMessage):
            if message.invalid_tool_calls:
                raise RefusedError("a call with malformed arguments")
            waiting += _ids_of(message)
            is_empty = is_empty or not (waiting or message.text.strip())
    if waiting:
        raise RefusedError(f"calls {waiting} have no result")
    if is_empty:
        raise RefusedError("a message must have either content or tool_calls")


def _ids_of(message: AIMessage) -> list[str]:
    """The ids of all calls of a message, wherever their provider reads them."""
    listed = [call["id"] or "" for call in message.tool_calls]
    blocks = [block for block in message.content if isinstance(block, dict)]
    in_blocks = [b[_ID_KEYS[b["type"]]] or "" for b in blocks if b.get("type") in _ID_KEYS]
    ids = [*listed, *(Counter(in_blocks) - Counter(listed)).elements()]
    raw = message.additional_kwargs.get("tool_calls", [])
    return ids or [each["id"] or "" for each in raw]


def _number(call: ToolCall) -> int:
    """The number in an id that `calls` gives; 0 for any other id."""
    found = re.fullmatch(r"c(\d+)", call["id"] or "")
    return int(found[1]) if found else 0


class StrictModel(BaseChatModel):
    """A chat model that says its script line by line, and then `done`.

    Before each line it refuses a history that a provider would refuse: a test fails where
    production would.

    Args:
        *script: What it says: messages, texts, lists of chunks to stream, or functions that take
            the history and return one of these.
        **fields: The attributes below, and other fields of a `BaseChatModel`.

    Raises:
        OptionError: If there is no such field; or later, if a line is none of these.

    Attributes:
        script: What it has not said yet.
        refuses: A function that raises an error for a history. Default: `check_request`.
        streaming: Whether it streams although nobody asks for it. Default: False.
        seen: The histories that it has read, in order.

    Examples:
        >>> from langgraph_patch.testing import StrictModel
        >>> model = StrictModel("Good morning.")
        >>> model.invoke("Hello!").text, model.invoke("Well?").text, len(model.seen)
        ('Good morning.', 'done', 2)
    """

    script: list[Any] = Field(default_factory=list, repr=False)
    refuses: Callable[[list[BaseMessage]], None] = check_request
    streaming: bool = False
    seen: list[list[BaseMessage]] = Field(default_factory=list, repr=False)
    _last: int = 0

    def __init__(self, *script: Any, **fields: Any) -> None:
        own = type(self).model_fields
        known = {*own, *(field.alias for field in own.values())}
        if unknown := fields.keys() - known:
            raise OptionError(
                f"StrictModel has no field {min(unknown)!r}. What it says: StrictModel('Hello.', "
                f"calls(('mail', {{}})))."
            )
        super().__init__(**{"script": [*script], **fields})

    @property
    def _llm_type(self) -> str:
        return "strict"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """Bind tools, as the models of integrations do."""
        return self.bind(tools=[convert_to_openai_tool(each) for each in tools], **kwargs)

    def _numbered(self, message: AIMessage, messages: list[BaseMessage]) -> AIMessage:
        """With the next numbers in the ids of its calls, unless they are higher."""
        # An agent inside of another one does not read the calls of that.
        depth = str(ensure_config()["metadata"].get("langgraph_checkpoint_ns")).count("|")
        before = (call for each in messages for call in getattr(each, "tool_calls", ()))
        last, listed = max([100 * depth, self._last, *map(_number, before)]), list[ToolCall]()
        for call in message.tool_calls:
            last = max(number, last + 1) if (number := _number(call)) else last
            listed.append({**call, "id": f"c{last}"} if number else call)
        self._last = last
        return message.model_copy(update={"tool_calls": listed})

    def _line(self, messages: list[BaseMessage]) -> Any:
        self.seen.append(list(messages))
        self.refuses(messages)
        line = self.script.pop(0) if self.script else "done"
        line = line(messages) if callable(line) else line
        parts = line if isinstance(line, list) else []
        is_line = isinstance(line, AIMessage | str | list)
        if not is_line or not all(isinstance(p, AIMessageChunk | Exception) for p in parts):
            raise OptionError(
                f"StrictModel cannot say {short(line)}: expected a message of a model, a text, the "
                f"chunks of one message as a list, or a function that returns one of these. "
                f"Several lines are several arguments: StrictModel(*lines)."
            )
        line = AIMessage(line) if isinstance(line, str) else line
        return spoken(self._numbered(line, messages) if isinstance(line, AIMessage) else line)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - by position, from `_agenerate`
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> ChatResult:
        line = self._line(messages)
        if isinstance(line, list):
            return generate_from_stream(_streamed(line, run_manager))
        return ChatResult(generations=[ChatGeneration(message=line.model_copy())])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - as above
        run_manager: CallbackManagerForLLMRun | None = None,
        **_: Any,
    ) -> Iterator[ChatGenerationChunk]:
        line = self._line(messages)
        if isinstance(line, AIMessage):
            line = [AIMessageChunk(content=line.content, id=line.id, tool_calls=line.tool_calls)]
        yield from _streamed(line, run_manager)


def _streamed(
    chunks: Sequence[Any], run_manager: CallbackManagerForLLMRun | None
) -> Iterator[ChatGenerationChunk]:
    """The chunks, each of which is reported; an error among them ends the stream."""
    for each in chunks:
        if isinstance(each, Exception):
            raise each
        chunk = ChatGenerationChunk(message=each.model_copy())
        if run_manager is not None:
            run_manager.on_llm_new_token(chunk.text, chunk=chunk)
        yield chunk
