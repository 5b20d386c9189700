"""Checkers: decide, while a model turn streams, whether the turn calls tools.

A checker is a callable that takes a `Turn` and returns True (the turn calls tools), False (it
does not) or None (more chunks are needed). It is called after each chunk until it decides, and
a last time when the turn has ended, so that it can learn. It does no I/O, so one checker serves
sync and async streams.

    checker                decides                          for models that
    first_chunk_checker    at the first text or tool call   call tools before they write text
    full_stream_checker    at a tool call or the end        write text before they call tools
    adaptive_checker       as it has learned for the model  you do not know
    live_checker           at once; may be retracted        write text before they call tools

Models differ. OpenAI's and Mistral's models usually call a tool without any text before it;
Claude, Gemini and reasoning models often explain first what they are about to do. A line in the
system prompt makes the first kind of turn more likely: "If you need a tool, call it at once.
Write no text before a tool call." Measure with `adaptive_checker.stats()` whether your model
keeps to it. OpenAI's Responses API marks text before a call as `commentary` and an answer as
`final_answer`; with such marks every checker decides at the first text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from langchain_core.messages import AIMessage, AIMessageChunk

from langgraph_patch.streaming.chunk_facts import has_call, has_reasoning, model_key, phase_of


@dataclass(slots=True, eq=False)
class Turn:
    """One model turn, as far as it has been streamed.

    Attributes:
        checker: The checker that decides about this turn.
        model: The model as `"provider:name"`, from the caller or from the metadata of chunks.
            Default: None, until the chunks have named both. Some name the model at the end.
        provider: The provider, which most chunks name. Default: None, until one does.
        chunks: The chunks that were read for the decision, the newest last. Empty after it.
        read: How many chunks were read for the decision.
        called: Whether the newest chunk contains a tool call; after the decision, whether the
            turn contains one.
        spoke: Whether a chunk without a tool call contained text. White space does not count:
            some models send it before a call. Text of the phase `"commentary"` does not either.
        wrote: Whether a chunk contained anything to show: text or reasoning.
        phase: What OpenAI's Responses API names the text: `"commentary"`, `"final_answer"`, or
            None.
        hides_order: Whether the turn came as one whole message with text and a tool call, so
            that nobody knows which came first.
        ended: Whether the stream has ended or the newest chunk is marked as the last one.
        answer: The decision: the checker's first answer that is not None, or False if the
            turn has ended without one. It does not change any more.
        early: Whether the decision was False before the end of the turn.
        late_call: Whether a tool call arrived after the answer False.

    Examples:
        A checker of your own, for a model that never calls a tool after ten chunks of text:

        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch.streaming import Turn, split_stream
        >>> def ten_chunks(turn: Turn) -> bool | None:
        ...     if turn.called:
        ...         return True
        ...     return False if turn.ended or len(turn.chunks) == 10 else None
        >>> split_stream([AIMessageChunk("word ")] * 50, checker=ten_chunks)[0]
        False
    """

    checker: Checker
    model: str | None = None
    provider: str | None = None
    chunks: list[AIMessage] = field(default_factory=list, init=False)
    read: int = field(default=0, init=False)
    called: bool = field(default=False, init=False)
    spoke: bool = field(default=False, init=False)
    wrote: bool = field(default=False, init=False)
    phase: str | None = field(default=None, init=False)
    hides_order: bool = field(default=False, init=False)
    ended: bool = field(default=False, init=False)
    answer: bool | None = field(default=None, init=False)
    early: bool = field(default=False, init=False)
    late_call: bool = field(default=False, init=False)
    _name: str | None = field(default=None, init=False)
    _is_closed: bool = field(default=False, init=False)

    def take(self, chunk: AIMessage) -> None:
        """Read the next chunk and call the checker, if the turn is not decided yet.

        Args:
            chunk: A chunk of the turn's message, or the whole message.

        Raises:
            Exception: Whatever the checker raises.
        """
        whole = not isinstance(chunk, AIMessageChunk)
        self.ended = not isinstance(chunk, AIMessageChunk) or chunk.chunk_position == "last"
        if self.model is None and chunk.response_metadata:
            self._read_model(chunk)
        if self.answer is None:
            called = has_call(chunk)
            self._read(chunk, called=called)
            self.hides_order = whole and called and bool(chunk.text.strip())
            self._decide()
        elif not (self.answer or self.late_call) and has_call(chunk):
            self.late_call = self.called = True
            self._close()
        if self.ended:
            self._close()

    def end(self) -> None:
        """Decide about an undecided turn after the end of its stream.

        Raises:
            Exception: Whatever the checker raises.
        """
        self.ended = True
        if self.answer is None:
            self._decide()
        self._close()

    def _read(self, chunk: AIMessage, *, called: bool) -> None:
        self.chunks.append(chunk)
        self.read += 1
        self.called = called
        if not isinstance(chunk.content, str):
            self.phase = phase_of(chunk) or self.phase
        if called or self.spoke:
            return
        text = bool(chunk.text.strip())
        self.spoke = text and self.phase != "commentary"
        self.wrote = self.wrote or text or has_reasoning(chunk)

    def _read_model(self, chunk: AIMessage) -> None:
        self.provider = self.provider or chunk.response_metadata.get("model_provider")
        self._name = self._name or chunk.response_metadata.get("model_name")
        self.model = model_key(self.provider, self._name)

    def _decide(self) -> None:
        self.answer = self.checker(self)
        if self.answer is None and self.ended:
            self.answer = False
        self.early = self.answer is False and not self.ended

    def _close(self) -> None:
        """Call the checker a last time, so that it can learn from the turn."""
        if not self._is_closed:
            self._is_closed = True
            self.checker(self)


Checker: TypeAlias = Callable[[Turn], bool | None]


def first_chunk_checker(turn: Turn) -> bool | None:
    """Decide at the first chunk that contains a tool call or text.

    For models that call tools before they write text (most OpenAI models). An answer is
    available from its first token. A turn that begins with text and calls a tool later, as
    those of Claude often do, is wrongly taken for an answer: `final_answers` then retracts it.
    Empty chunks, white space, reasoning and text of the phase `"commentary"` do not decide.

    Args:
        turn: The turn so far.

    Returns:
        True at a tool call, False at text or at the end of the turn, else None.

    Examples:
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch.streaming import first_chunk_checker, split_stream
        >>> chunks = [AIMessageChunk(""), AIMessageChunk("Good "), AIMessageChunk("morning.")]
        >>> split_stream(chunks, checker=first_chunk_checker)[0]
        False
    """
    if turn.called:
        return True
    return False if turn.spoke or turn.ended else None


def full_stream_checker(turn: Turn) -> bool | None:
    """Decide at the first tool call or at the end of the turn.

    It is never wrong. A turn without tool calls is read to its end before it is decided, unless
    the provider marks its text as `"final_answer"`.

    Args:
        turn: The turn so far.

    Returns:
        True at a tool call, False at the end of the turn or at text that the provider marks as
        the final answer, else None.

    Examples:
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch.streaming import full_stream_checker, split_stream
        >>> call = {"name": "weather", "args": "{}", "id": "c1", "index": 0}
        >>> chunks = [AIMessageChunk("Let me see."), AIMessageChunk("", tool_call_chunks=[call])]
        >>> split_stream(chunks, checker=full_stream_checker)[0]
        True
    """
    if turn.called:
        return True
    is_answer = turn.spoke and turn.phase == "final_answer"
    return False if is_answer or turn.ended else None


def live_checker(turn: Turn) -> bool | None:
    """Take a turn for an answer from its first text or reasoning, until a tool call arrives.

    For `final_answers`: every token is shown at once, reasoning included. If a tool call
    follows, what was shown is retracted. With models that write text before they call a tool,
    nothing else is both live and true.

    Args:
        turn: The turn so far.

    Returns:
        True at a tool call, False at text, at reasoning or at the end of the turn, else None.

    Examples:
        >>> from langchain_core.messages import AIMessageChunk, RemoveMessage
        >>> from langgraph_patch.streaming import final_answers, live_checker
        >>> call = {"name": "weather", "args": "{}", "id": "c1", "index": 0}
        >>> tokens = [
        ...     AIMessageChunk("Let me see.", id="1"),
        ...     AIMessageChunk("", id="1", tool_call_chunks=[call]),
        ...     AIMessageChunk("Sunny.", id="2", chunk_position="last"),
        ... ]
        >>> stream = ((token, {}) for token in tokens)
        >>> for token, _ in final_answers(stream, checker=live_checker):
        ...     if isinstance(token, RemoveMessage):
        ...         print("retract", token.id)
        ...     else:
        ...         print(token.id, token.text)
        1 Let me see.
        retract 1
        2 Sunny.
    """
    if turn.called:
        return True
    return False if turn.wrote or turn.ended else None
