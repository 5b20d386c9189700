"""Checkers: decide, while a model turn streams, whether the turn calls tools.

A checker is a callable that takes a `Turn` and returns True (the turn calls tools), False (it
does not) or None (more chunks are needed). It is called after each chunk until it decides. It
does no I/O, so one checker serves sync and async streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import TypeAlias

from langchain_core.messages import AIMessage, AIMessageChunk


@dataclass(slots=True, eq=False)
class Turn:
    """One model turn, as far as it has been streamed.

    Attributes:
        checker: The checker that decides about this turn.
        model: The model as `"provider:name"`, from the caller or from the metadata of a
            chunk. Default: None, until a chunk names it.
        chunks: The chunks that were read for the decision, the newest last.
        called: Whether the newest of `chunks` contains a tool call.
        spoke: Whether a chunk without a tool call contained text. White space does not
            count: some models send it before a call.
        ended: Whether the stream has ended or the newest chunk is marked as the last one.
        answer: The decision: the checker's first answer that is not None, or False if the
            turn has ended without one. It does not change any more.
        late_call: Whether a tool call arrived after the answer False. The checker is then
            called once more, with that chunk at the end of `chunks`, so that it can learn
            from the error. What it returns then is ignored.

    Example:
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
    chunks: list[AIMessage] = field(default_factory=list)
    called: bool = False
    spoke: bool = False
    ended: bool = False
    answer: bool | None = None
    late_call: bool = False

    def take(self, chunk: AIMessage) -> None:
        """Read the next chunk and call the checker, if the turn is not decided yet.

        Args:
            chunk: A chunk of the turn's message, or the whole message.

        Raises:
            Exception: Whatever the checker raises.
        """
        called = bool(chunk.tool_calls or chunk.invalid_tool_calls)
        self.ended = not isinstance(chunk, AIMessageChunk) or chunk.chunk_position == "last"
        if self.answer is None:
            self.chunks.append(chunk)
            self.called = called
            self.spoke = self.spoke or (not called and bool(chunk.text.strip()))
            self.model = self.model or _model_of_chunk(chunk)
            self._call_checker()
        elif called and not self.answer and not self.late_call:
            self.late_call = True
            self.chunks.append(chunk)
            self.called = True
            self.checker(self)

    def end(self) -> None:
        """Decide about an undecided turn after the end of its stream.

        Raises:
            Exception: Whatever the checker raises.
        """
        self.ended = True
        self._call_checker()

    def _call_checker(self) -> None:
        self.answer = self.checker(self)
        if self.answer is None and self.ended:
            self.answer = False


Checker: TypeAlias = Callable[[Turn], bool | None]


def model_key(provider: str | None, name: str | None) -> str | None:
    """The model as `"provider:name"`; None if either is missing."""
    return f"{provider}:{name}" if provider and name else None


def _model_of_chunk(chunk: AIMessage) -> str | None:
    metadata = chunk.response_metadata
    return model_key(metadata.get("model_provider"), metadata.get("model_name"))


def first_chunk_checker(turn: Turn) -> bool | None:
    """Decide at the first chunk that contains a tool call or text.

    For models that call tools before they write text (most OpenAI models). An answer is
    available from its first token. A turn that begins with text and calls a tool later, as
    those of Claude often do, is wrongly taken for an answer. Empty chunks, white space and
    reasoning do not decide.

    Args:
        turn: The turn so far.

    Returns:
        True at a tool call, False at text or at the end of the turn, else None.

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
    """Decide at the first tool call or at the end of the turn.

    It is never wrong. A turn without tool calls is read to its end before it is decided.

    Args:
        turn: The turn so far.

    Returns:
        True at a tool call, False at the end of the turn, else None.

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
    """What an `AdaptiveChecker` has counted for one model.

    Attributes:
        turns: Turns that the checker decided.
        calls: Turns that contained a tool call.
        early: Turns that the checker decided as False before their end.
        wrong: Turns of `early` in which a tool call arrived later.
        chunks_read: Chunks that were read before the decisions, over all turns.
        text_first: Whether any turn had text before a tool call. The checker then reads
            every further turn of this model until a tool call or the end.

    Example:
        >>> from langgraph_patch.streaming import ModelStats
        >>> stats = ModelStats(turns=10, calls=4, early=6, wrong=0, chunks_read=10)
        >>> stats.text_first
        False
    """

    turns: int = 0
    calls: int = 0
    early: int = 0
    wrong: int = 0
    chunks_read: int = 0
    text_first: bool = False


class AdaptiveChecker:
    """Learn for each model whether its first chunk with text or a tool call decides.

    A model starts with the rule of `full_stream_checker`: read until a tool call or the end.
    After `min_calls` turns with tool calls, none of them with text first, it gets the rule of
    `first_chunk_checker`. One turn with text before a tool call puts the model back to the
    first rule for good. The counts are kept in memory, for this process only.

    The model is identified by provider and name. They come from the metadata beside each
    message (`final_answers`), from the argument `model` of `split_stream`, or from the chunks
    that were read so far. OpenAI Chat Completions names the model in the last chunk only, so
    pass `model`. If the model is not identified, the turn is read until a tool call or the
    end, and is not counted. A message that arrives whole, with text and a tool call, is not
    counted either: it does not show which came first.

    An instance can be used from several threads at once.

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
        """Create a checker that has counted nothing yet.

        Args:
            min_calls: After how many turns with tool calls a model's first chunk with text
                decides. Default: 20.
            max_models: For how many models counts are kept. Default: 1000. Every further
                model is read until a tool call or the end. Counts are never evicted, since
                they may record that a model writes text before a tool call.
        """
        self._min_calls = min_calls
        self._max_models = max_models
        self._stats: dict[str, ModelStats] = {}
        self._lock = Lock()

    def __call__(self, turn: Turn) -> bool | None:
        """Decide about the turn, and count it once it is decided."""
        if turn.model is None or _hides_order(turn):
            return full_stream_checker(turn)
        with self._lock:
            stats = self._stats.get(turn.model, ModelStats())
            if turn.late_call:
                answer: bool | None = True
                stats = replace(
                    stats, calls=stats.calls + 1, wrong=stats.wrong + 1, text_first=True
                )
            else:
                answer = self._decide(turn, stats)
                if answer is None:
                    return None
                stats = _count(stats, turn, answer=answer)
            if turn.model in self._stats or len(self._stats) < self._max_models:
                self._stats[turn.model] = stats
            return answer

    def _decide(self, turn: Turn, stats: ModelStats) -> bool | None:
        calls_first = stats.calls >= self._min_calls and not stats.text_first
        return first_chunk_checker(turn) if calls_first else full_stream_checker(turn)

    def stats(self) -> dict[str, ModelStats]:
        """Return a copy of the counts, by `"provider:name"`."""
        with self._lock:
            return dict(self._stats)

    def reset(self) -> None:
        """Delete all counts, including which models write text before a tool call."""
        with self._lock:
            self._stats.clear()


def _hides_order(turn: Turn) -> bool:
    """Whether one whole message contains text and a tool call, so either may have come first."""
    if turn.spoke or not turn.called:
        return False
    newest = turn.chunks[-1]
    return not isinstance(newest, AIMessageChunk) and bool(newest.text.strip())


def _count(stats: ModelStats, turn: Turn, *, answer: bool) -> ModelStats:
    return replace(
        stats,
        turns=stats.turns + 1,
        calls=stats.calls + answer,
        early=stats.early + (not answer and not turn.ended),
        chunks_read=stats.chunks_read + len(turn.chunks),
        text_first=stats.text_first or (answer and turn.spoke),
    )


adaptive_checker: AdaptiveChecker = AdaptiveChecker()
"""The `AdaptiveChecker` that all callers in this process share."""
