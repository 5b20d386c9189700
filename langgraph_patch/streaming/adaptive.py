"""A checker that learns for each model whether its first text or tool call decides a turn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from threading import Lock

from langgraph_patch.errors import OptionError
from langgraph_patch.streaming.checkers import Turn, first_chunk_checker, full_stream_checker


@dataclass(frozen=True, slots=True)
class ModelStats:
    """What an `AdaptiveChecker` has counted for one model.

    Attributes:
        turns: Turns that were read to their end, or to a late tool call.
        calls: Turns that contained a tool call.
        early: Turns that the checker decided as False before their end.
        wrong: Turns of `early` in which a tool call arrived later.
        chunks_read: Chunks that were read before the decisions, over all turns.
        text_first: Turns with text before a tool call.
        calls_since: Turns with a tool call since the last one with text before it.

    Examples:
        >>> from langgraph_patch.streaming import ModelStats
        >>> stats = ModelStats(turns=10, calls=4, early=6, chunks_read=10, calls_since=4)
        >>> stats.wrong, stats.text_first
        (0, 0)
    """

    turns: int = 0
    calls: int = 0
    early: int = 0
    wrong: int = 0
    chunks_read: int = 0
    text_first: int = 0
    calls_since: int = 0


class AdaptiveChecker:
    """Learn for each model whether its first chunk with text or a tool call decides.

    A model starts with the rule of `full_stream_checker`: read until a tool call or the end.
    After `min_calls` turns with tool calls, none of them with text before the call, it gets the
    rule of `first_chunk_checker`. A turn with text before a tool call puts the model back to the
    first rule, until `forget_after` turns with tool calls have followed without such text. The
    counts are kept in memory, for this process only.

    It helps with models that call tools without text before them: most of OpenAI's, Mistral's
    and Cohere's, and others that the prompt makes do so. It does not help with models that
    explain first what they are about to do, such as Claude: their answers keep arriving whole.
    Use `live_checker` with these.

    The model is identified by provider and name. They come from the metadata beside each
    message (`final_answers`), from the argument `model` of `split_stream`, or from the chunks.
    Many integrations name the model in the last chunk only (OpenAI Chat Completions, Mistral,
    Groq, Bedrock). Such a turn is counted for the model that it names at its end. Until then it
    is taken for a turn of the only model of that provider that was counted so far; with several
    models of one provider it is read until a tool call or the end, so pass `model`. A turn that
    names no model is not counted. Neither is a message that arrives whole, with text and a tool
    call (it does not show which came first), nor a turn that is not read to its end.

    An instance can be used from several threads at once.

    Examples:
        >>> from langchain_core.messages import AIMessageChunk
        >>> from langgraph_patch.streaming import AdaptiveChecker, split_stream
        >>> checker = AdaptiveChecker(min_calls=1)
        >>> call = {"name": "weather", "args": "{}", "id": "c1", "index": 0}
        >>> text = [AIMessageChunk("Good "), AIMessageChunk("morning.")]
        >>> for stream in [AIMessageChunk("", tool_call_chunks=[call])], text:
        ...     _, chunks = split_stream(stream, checker=checker, model="openai:gpt-5")
        ...     _ = list(chunks)
        >>> stats = checker.stats()["openai:gpt-5"]
        >>> stats.turns, stats.calls, stats.early, stats.chunks_read
        (2, 1, 1, 2)
    """

    def __init__(
        self, *, min_calls: int = 20, forget_after: int = 100, max_models: int = 1000
    ) -> None:
        """Create a checker that has counted nothing yet.

        Args:
            min_calls: After how many turns with tool calls a model's first chunk with text
                decides. Default: 20.
            forget_after: How many turns with tool calls, none of them with text before the
                call, must follow a turn with such text before the first chunk decides again.
                Default: 100.
            max_models: For how many models counts are kept. Default: 1000. Every further
                model is read until a tool call or the end.

        Raises:
            OptionError: If one of them is no integer, or is less than 1.
        """
        options = {"min_calls": min_calls, "forget_after": forget_after, "max_models": max_models}
        for name, value in options.items():
            if not isinstance(value, int) or value < 1:
                raise OptionError(f"{name}={value!r} is invalid: pass an integer of at least 1.")
        self._min_calls = min_calls
        self._forget_after = forget_after
        self._max_models = max_models
        self._stats: dict[str, ModelStats] = {}
        self._models: dict[str, set[str]] = {}
        self._lock = Lock()

    def __call__(self, turn: Turn) -> bool | None:
        """Decide about the turn; count it once it has ended."""
        if turn.answer is not None:
            self._count(turn)
            return None
        model = turn.model or self._only_model(turn.provider)
        stats = self._stats.get(model) if model else None
        if stats is not None and self._calls_first(stats):
            return first_chunk_checker(turn)
        return full_stream_checker(turn)

    def stats(self) -> dict[str, ModelStats]:
        """Return a copy of the counts, by `"provider:name"`."""
        with self._lock:
            return dict(self._stats)

    def reset(self) -> None:
        """Delete all counts, including which models write text before a tool call."""
        with self._lock:
            self._stats.clear()
            self._models.clear()

    def _calls_first(self, stats: ModelStats) -> bool:
        needed = self._forget_after if stats.text_first else self._min_calls
        return stats.calls_since >= needed

    def _only_model(self, provider: str | None) -> str | None:
        """The model of a provider, if only one of its models was counted."""
        with self._lock:
            models = self._models.get(provider or "", ())
            return next(iter(models)) if len(models) == 1 else None

    def _count(self, turn: Turn) -> None:
        has_call = bool(turn.answer) or turn.late_call
        model = turn.model or (self._only_model(turn.provider) if turn.late_call else None)
        if model is None or turn.hides_order:
            return
        with self._lock:
            if model not in self._stats and len(self._stats) >= self._max_models:
                return
            self._stats[model] = _counted(self._stats.get(model, ModelStats()), turn, has_call)
            provider = turn.provider or model.partition(":")[0]
            self._models.setdefault(provider, set()).add(model)


def _counted(stats: ModelStats, turn: Turn, has_call: bool) -> ModelStats:  # noqa: FBT001
    text_first = has_call and turn.spoke
    return replace(
        stats,
        turns=stats.turns + 1,
        calls=stats.calls + has_call,
        early=stats.early + turn.early,
        wrong=stats.wrong + turn.late_call,
        chunks_read=stats.chunks_read + turn.read,
        text_first=stats.text_first + text_first,
        calls_since=0 if text_first else stats.calls_since + has_call,
    )


adaptive_checker: AdaptiveChecker = AdaptiveChecker()
"""The `AdaptiveChecker` that all callers in this process share."""
