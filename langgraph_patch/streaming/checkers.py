"""Checkers: decide, while a model streams a message, whether the message calls tools.

A checker is a callable that takes a `Turn` and returns True (the message calls tools), False (it
does not) or None (more chunks are needed). It is called after each chunk until it decides. It
does no I/O, so one checker serves sync and async streams.

    checker                decides                    for models that
    full_stream_checker    at a tool call or the end  write text before they call tools
    first_chunk_checker    at the first text or call  call tools before they write text

OpenAI's and Mistral's models usually call a tool without any text before it; Claude, Gemini and
reasoning models often explain first what they are about to do. A line in the system prompt makes
the first kind more likely: "If you need a tool, call it at once. Write no text before a tool
call." OpenAI's Responses API marks text before a call as `commentary` and an answer as
`final_answer`; both checkers use these marks.

`split_stream` asks a checker about the stream of a model, and loses no chunk of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from langchain_core.messages import AIMessage, AIMessageChunk

from langgraph_patch._text import short
from langgraph_patch.errors import MessagesError, OptionError
from langgraph_patch.history.fields import Block, blocks_beside, blocks_of
from langgraph_patch.streaming.streams import apass_on, open_stream, pass_on

_CALLS_OUTSIDE_TOOL_CALLS: Final = frozenset(
    {"apply_patch_call", "computer_call", "local_shell_call", "mcp_approval_request", "shell_call"}
)
"""OpenAI's blocks that the client must answer, and that LangChain does not list as tool calls."""

_EXPECTED = "the chunks of one turn"


# --- what a checker sees -------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Turn:
    """One message of a model, as far as it has been streamed.

    Attributes:
        checker: The checker that decides about this message.
        chunks: The chunks that were read for the decision, the newest last. Empty after it.
        called: Whether a chunk contained a tool call.
        spoke: Whether a chunk before any tool call contained text. White space does not count:
            some models send it before a call. Text of the phase `"commentary"` does not either.
        wrote: Whether a chunk before any tool call contained anything to show: text of any
            phase, or reasoning.
        phase: What OpenAI's Responses API names the text: `"commentary"`, `"final_answer"`, or
            None.
        ended: Whether the stream has ended or the newest chunk is marked as the last one.
        answer: The decision: the checker's first answer that is not None, or False if the
            message has ended without one. It does not change any more.

    Examples:
        A checker of your own, for a model that never calls a tool after ten chunks of text:

        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch import Turn, split_stream
        >>> def ten_chunks(turn: Turn) -> bool | None:
        ...     if turn.called:
        ...         return True
        ...     return False if turn.ended or len(turn.chunks) == 10 else None
        >>> split_stream([AIMessageChunk("word ")] * 50, checker=ten_chunks)[0]
        False
    """

    checker: Checker
    chunks: list[AIMessage] = field(default_factory=list, init=False)
    called: bool = field(default=False, init=False)
    spoke: bool = field(default=False, init=False)
    wrote: bool = field(default=False, init=False)
    phase: str | None = field(default=None, init=False)
    ended: bool = field(default=False, init=False)
    answer: bool | None = field(default=None, init=False)

    def take(self, chunk: AIMessage) -> None:
        """Read the next chunk and call the checker, if the message is not decided yet.

        Args:
            chunk: A chunk of the message, or the whole message.

        Raises:
            OptionError: If the checker returns anything but True, False or None.
            Exception: Whatever the checker raises.
        """
        self.ended = not isinstance(chunk, AIMessageChunk) or chunk.chunk_position == "last"
        self.called = self.called or has_call(chunk)
        if self.answer is None:
            self.chunks.append(chunk)
            self._read_text(chunk)
            self._decide()

    def end(self) -> None:
        """Decide about an undecided message after the end of its stream.

        Raises:
            OptionError: If the checker returns anything but True, False or None.
            Exception: Whatever the checker raises.
        """
        self.ended = True
        if self.answer is None:
            self._decide()

    def _read_text(self, chunk: AIMessage) -> None:
        if not isinstance(chunk.content, str):
            self.phase = phase_of(chunk) or self.phase
        if not (self.called or self.spoke):
            text = bool(chunk.text.strip())
            self.spoke = text and self.phase != "commentary"
            self.wrote = self.wrote or text or has_reasoning(chunk)

    def _decide(self) -> None:
        answer = self.checker(self)
        if not isinstance(answer, bool | None):
            raise OptionError(
                f"The checker {short(self.checker)} returned {short(answer)}. Expected True, False "
                "or None."
            )
        self.answer = False if answer is None and self.ended else answer
        if self.answer is not None:
            self.chunks.clear()


Checker: TypeAlias = Callable[[Turn], bool | None]


def checked_checker(checker: object) -> Checker:
    """The checker, if it can be called.

    Raises:
        OptionError: If it cannot.
    """
    if not callable(checker):
        raise OptionError(
            f"checker={short(checker)}: expected a function of a Turn, such as full_stream_checker "
            f"or first_chunk_checker of langgraph_patch.streaming."
        )
    return checker


def first_chunk_checker(turn: Turn) -> bool | None:
    """Decide at the first chunk that contains a tool call or text.

    For models that call tools before they write text (most OpenAI models). An answer is
    available from its first token. A message that begins with text and calls a tool later, as
    those of Claude often do, is wrongly taken for an answer: `final_answers` then retracts it.
    Empty chunks, white space, reasoning and text of the phase `"commentary"` do not decide.

    Args:
        turn: The message so far.

    Returns:
        True at a tool call, False at text or at the end of the message, else None.

    Examples:
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch import first_chunk_checker, split_stream
        >>> chunks = [AIMessageChunk(""), AIMessageChunk("Good "), AIMessageChunk("morning.")]
        >>> split_stream(chunks, checker=first_chunk_checker)[0]
        False
    """
    if turn.called:
        return True
    return False if turn.spoke or turn.ended else None


def full_stream_checker(turn: Turn) -> bool | None:
    """Decide at the first tool call or at the end of the message.

    It is never wrong. A message without tool calls is read to its end before it is decided,
    unless the provider marks its text as `"final_answer"`.

    Args:
        turn: The message so far.

    Returns:
        True at a tool call, False at the end of the message or at text that the provider marks
        as the final answer, else None.

    Examples:
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch import full_stream_checker, split_stream
        >>> call = {"name": "weather", "args": "{}", "id": "c1", "index": 0}
        >>> chunks = [AIMessageChunk("Let me see."), AIMessageChunk("", tool_call_chunks=[call])]
        >>> split_stream(chunks, checker=full_stream_checker)[0]
        True
    """
    if turn.called:
        return True
    is_answer = turn.spoke and turn.phase == "final_answer"
    return False if is_answer or turn.ended else None


# --- what a chunk contains -----------------------------------------------------------------


def has_call(chunk: AIMessage) -> bool:
    """Whether a chunk contains a tool call or a piece of one.

    OpenAI's older `function_call`, and its calls of a computer or a shell, count too.
    """
    if chunk.tool_calls or chunk.invalid_tool_calls or chunk.additional_kwargs.get("function_call"):
        return True
    return any(block.kind in _CALLS_OUTSIDE_TOOL_CALLS for block in _blocks(chunk))


def has_reasoning(chunk: AIMessage) -> bool:
    is_beside = bool(chunk.additional_kwargs.get("reasoning_content"))
    return is_beside or any(block.is_reasoning for block in _blocks(chunk))


def phase_of(chunk: AIMessage) -> str | None:
    """The phase that OpenAI names for the text that begins in a chunk, or None.

    It is `"commentary"` for text before tool calls and `"final_answer"` for an answer.
    """
    phases = (block.fields.get("phase") or block.v1_extra("phase") for block in _blocks(chunk))
    return next((phase for phase in phases if isinstance(phase, str)), None)


def _blocks(chunk: AIMessage) -> list[Block]:
    """The content blocks, and those that the integration's `output_version="v0"` puts beside."""
    return [*blocks_of(chunk), *blocks_beside(chunk)]


# --- the stream of a model -----------------------------------------------------------------


def split_stream(
    stream: Iterable[AIMessageChunk], *, checker: Checker = full_stream_checker
) -> tuple[bool, Generator[AIMessageChunk]]:
    """Read the stream of a model until it is clear whether it calls tools, and keep the chunks.

    Args:
        stream: The chunks of one message: the return value of `chat_model.stream(...)`.
        checker: Decides whether the message calls tools. It is called with the `Turn` after
            each chunk until it returns True or False. Default: `full_stream_checker`, which is
            never wrong, and reads an answer to its end.

    Returns:
        Whether the message calls tools, and a generator of all its chunks. Its `close()` closes the
        model's stream. An exception of the stream is raised by the generator, behind the chunks
        that arrived before it; a message without a decision until then counts as one without tool
        calls.

    Raises:
        OptionError: If `checker` cannot be called, or returns anything but True, False or None.
        MessagesError: If `stream` is no stream of that kind (the message names the function for
            it).
        Exception: Whatever the checker raises. The stream is closed first.

    Examples:
        The tool calls of a message are run, an answer is shown chunk by chunk:

        >>> from contextlib import closing
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch import message_from_stream, split_stream
        >>> def model(question):  # in place of chat_model.stream
        ...     if "weather" in question:
        ...         yield AIMessageChunk("Let me see.")
        ...         call = {"name": "weather", "args": '{"city": "Rome"}', "id": "c1", "index": 0}
        ...         yield AIMessageChunk("", tool_call_chunks=[call])
        ...     else:
        ...         yield from (AIMessageChunk(text) for text in ("Good ", "morning."))
        >>> def reply(question):
        ...     calls_tools, chunks = split_stream(model(question))
        ...     with closing(chunks):  # closes the model's stream, also if the client disconnects
        ...         if calls_tools:
        ...             for call in message_from_stream(chunks).tool_calls:
        ...                 print("run:", call["name"], call["args"])
        ...         else:
        ...             for chunk in chunks:
        ...                 print("show:", repr(chunk.text))
        >>> reply("How is the weather?")
        run: weather {'city': 'Rome'}
        >>> reply("Hello!")
        show: 'Good '
        show: 'morning.'
    """
    source = open_stream(stream, expected=_EXPECTED, remedy="use asplit_stream")
    chunks = pass_on(source, _Split(checker))
    return next(chunks), chunks


async def asplit_stream(
    stream: AsyncIterable[AIMessageChunk], *, checker: Checker = full_stream_checker
) -> tuple[bool, AsyncGenerator[AIMessageChunk]]:
    """Same as `split_stream`, but for an async stream of a model.

    Args:
        stream: The chunks of one message: the return value of `chat_model.astream(...)`.
        checker: Decides whether the message calls tools. Default: `full_stream_checker`.

    Returns:
        Whether the message calls tools, and an async generator of all its chunks. Its `aclose()`
        closes the model's stream.

    Raises:
        OptionError: If `checker` cannot be called.
        MessagesError: If `stream` is a sync stream, or in the cases of `split_stream`.
        Exception: Whatever the checker raises. The stream is closed first.

    Examples:
        >>> import asyncio
        >>> from contextlib import aclosing
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch import asplit_stream
        >>> async def model():
        ...     yield AIMessageChunk("Good ")
        ...     yield AIMessageChunk("morning.")
        >>> async def reply():
        ...     calls_tools, chunks = await asplit_stream(model())
        ...     async with aclosing(chunks):
        ...         return calls_tools, [chunk.text async for chunk in chunks]
        >>> asyncio.run(reply())
        (False, ['Good ', 'morning.'])
    """
    source = open_stream(stream, expected=_EXPECTED, remedy="use split_stream", asynchronous=True)
    chunks = apass_on(source, _Split(checker))
    return await anext(chunks), chunks


class _Split:
    """Passes on the decision about a message first, then its chunks."""

    def __init__(self, checker: Checker) -> None:
        self._turn = Turn(checked_checker(checker))
        self._read: list[Any] | None = []

    def add(self, item: Any) -> Iterable[Any]:
        if self._read is None:
            return (item,)
        if not isinstance(item, AIMessage):
            raise MessagesError(
                f"Expected {_EXPECTED}, got {short(item)}: pass what chat_model.stream returns. "
                "The stream of a graph is for final_answers and afinal_answers."
            )
        self._read.append(item)
        self._turn.take(item)
        return () if self._turn.answer is None else self._decision(self._read)

    def finish(self, *, failed: bool) -> Iterable[Any]:
        if self._read is None:
            return ()
        if not failed:
            self._turn.end()
        return self._decision(self._read)

    def _decision(self, read: list[Any]) -> Iterable[Any]:
        self._read = None
        return (bool(self._turn.answer), *read)
