"""Decides, while a model turn streams, whether the turn calls tools.

A checker is any callable from a `Turn` to True (it calls), False (it does not) or None
(read on). It is asked after each chunk until it answers, and does no I/O: streams are read
elsewhere, so that the same checker serves the sync and the async ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TypeAlias

from langchain_core.messages import AIMessage, AIMessageChunk


@dataclass(slots=True, eq=False)
class Turn:
    """What is known of one model turn while it streams.

    Attributes:
        checker: Who is asked.
        model: `"provider:name"`, as the caller or a chunk's metadata names it; None if
            neither did so far.
        chunks: What was read for the decision, the newest last.
        called: Whether the newest of them carries a tool call.
        spoke: Whether text came before any tool call. White space is no text: some models
            send it ahead of a call.
        ended: Whether the stream has ended, or the newest chunk says that it is the last.
        answer: The checker's first answer that is not None. It stays.
        late_call: Whether a tool call came after the answer False. The checker is then
            asked once more, with that chunk at the end of `chunks`, so that it can learn;
            what it returns changes nothing.
    """

    checker: Checker
    model: str | None = None
    chunks: list[AIMessage] = field(default_factory=list)
    called: bool = False
    spoke: bool = False
    ended: bool = False
    answer: bool | None = None
    late_call: bool = False

    def take(self, chunk: AIMessage) -> None:
        """Read the next chunk, or a message that came whole."""
        called = bool(chunk.tool_calls or chunk.invalid_tool_calls)
        self.ended = not isinstance(chunk, AIMessageChunk) or chunk.chunk_position == "last"
        if self.answer is None:
            self.chunks.append(chunk)
            self.called = called
            self.spoke = self.spoke or (not called and bool(chunk.text.strip()))
            self.model = self.model or _model_of(chunk)
            self._ask()
        elif called and not self.answer and not self.late_call:
            self.late_call = True
            self.chunks.append(chunk)
            self.called = True
            self.checker(self)

    def end(self) -> None:
        """Take note that nothing follows a turn that is not answered yet."""
        self.ended = True
        self._ask()

    def _ask(self) -> None:
        self.answer = self.checker(self)
        if self.answer is None and self.ended:
            self.answer = False


Checker: TypeAlias = Callable[[Turn], bool | None]


def _model_of(chunk: AIMessage) -> str | None:
    provider = chunk.response_metadata.get("model_provider")
    name = chunk.response_metadata.get("model_name")
    return f"{provider}:{name}" if provider and name else None


def first_chunk_checker(turn: Turn) -> bool | None:
    """Let the first meaningful chunk decide: a call or text, whichever comes first.

    For models that call before they speak (most OpenAI ones). Text is shown from its first
    token. Claude and others speak first and then call: for them the answer is a wrong no.
    Empty chunks, white space and reasoning decide nothing.

    Args:
        turn: The turn so far.

    Returns:
        True at a call, False at text or at the end, else None.

    Example:
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
    """Read until a call or the end: never wrong, and a turn without calls is read whole.

    Args:
        turn: The turn so far.

    Returns:
        True at a call, False at the end, else None.

    Example:
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch.streaming import full_stream_checker, split_stream
        >>> call = {"name": "weather", "args": "{}", "id": "c1", "index": 0}
        >>> chunks = [AIMessageChunk("Let me see."), AIMessageChunk("", tool_call_chunks=[call])]
        >>> split_stream(chunks, checker=full_stream_checker)[0]
        True
    """
    if turn.called:
        return True
    return False if turn.ended else None


@dataclass(frozen=True, slots=True)
class ModelStats:
    """What an `AdaptiveChecker` has seen of one model.

    Attributes:
        turns: Turns that it decided.
        calls: Turns with a tool call among them.
        early: Times that it said no before the end of the turn.
        wrong: Times that a call came after such a no.
        chunks_read: Chunks that it read for its decisions.
        text_first: Whether one turn had text before a call. The model is then read in
            full for good.
    """

    turns: int = 0
    calls: int = 0
    early: int = 0
    wrong: int = 0
    chunks_read: int = 0
    text_first: bool = False


class AdaptiveChecker:
    """Reads in full until a model has shown that it calls before it speaks.

    A call is proof of a yes. A no before the end is a prediction: it is made only for a
    model of which enough turns with calls were seen, none of them with text first. One
    counter-example demotes the model for good. The numbers are the process's, in memory.

    A model is told by its provider and name: those that LangGraph gives beside each chunk
    (`final_answers`), the `model=` of `split_stream`, or those in the chunks so far. OpenAI
    Chat Completions names the model only at the end. A turn whose model is not known is
    read in full and teaches nothing. Nor does a message that came whole, with text and a
    call: it does not show which came first.

    Thread-safe. At most `max_models` are kept: further ones are read in full, since to
    forget one might be to forget its demotion.

    Example:
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch.streaming import AdaptiveChecker, split_stream
        >>> checker = AdaptiveChecker(min_calls=1)
        >>> call = {"name": "weather", "args": "{}", "id": "c1", "index": 0}
        >>> text = [AIMessageChunk("Good "), AIMessageChunk("morning.")]
        >>> for chunks in [AIMessageChunk("", tool_call_chunks=[call])], text:
        ...     calls_tools, _ = split_stream(chunks, checker=checker, model="openai:gpt-5")
        >>> checker.stats()["openai:gpt-5"]
        ModelStats(turns=2, calls=1, early=1, wrong=0, chunks_read=2, text_first=False)
    """

    def __init__(self, *, min_calls: int = 20, max_models: int = 1000) -> None:
        """Start with nothing seen.

        Args:
            min_calls: How many turns with calls must have been seen of a model before a
                no is said early. Default: 20.
            max_models: How many models are kept apart. Default: 1000.
        """
        self._min_calls = min_calls
        self._max_models = max_models
        self._seen: dict[str, ModelStats] = {}
        self._lock = Lock()

    def __call__(self, turn: Turn) -> bool | None:
        """Answer for the turn so far, and learn from it once it is answered."""
        if turn.model is None or _hides_order(turn):
            return full_stream_checker(turn)
        with self._lock:
            seen = self._seen.get(turn.model, ModelStats())
            if turn.late_call:
                seen = replace(seen, calls=seen.calls + 1, wrong=seen.wrong + 1, text_first=True)
                answer: bool | None = True
            else:
                answer = self._answer(turn, seen)
                if answer is None:
                    return None
                seen = _learned(seen, turn, answer=answer)
            if turn.model in self._seen or len(self._seen) < self._max_models:
                self._seen[turn.model] = seen
            return answer

    def _answer(self, turn: Turn, seen: ModelStats) -> bool | None:
        trusted = seen.calls >= self._min_calls and not seen.text_first
        return first_chunk_checker(turn) if trusted else full_stream_checker(turn)

    def stats(self) -> dict[str, ModelStats]:
        """What was seen so far, by `"provider:name"`: a copy."""
        with self._lock:
            return dict(self._seen)

    def reset(self) -> None:
        """Forget everything, demotions too."""
        with self._lock:
            self._seen.clear()


def _hides_order(turn: Turn) -> bool:
    """Whether a message that is no chunk brought text and a call at once."""
    if turn.spoke or not turn.called:
        return False
    newest = turn.chunks[-1]
    return not isinstance(newest, AIMessageChunk) and bool(newest.text.strip())


def _learned(seen: ModelStats, turn: Turn, *, answer: bool) -> ModelStats:
    return replace(
        seen,
        turns=seen.turns + 1,
        calls=seen.calls + answer,
        early=seen.early + (not answer and not turn.ended),
        chunks_read=seen.chunks_read + len(turn.chunks),
        text_first=seen.text_first or (answer and turn.spoke),
    )


adaptive_checker: AdaptiveChecker = AdaptiveChecker()
"""The process's own `AdaptiveChecker`."""
