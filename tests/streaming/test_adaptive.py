"""The adaptive checker: what it learns of each model, and when it forgets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk

from langgraph_patch.errors import OptionError
from langgraph_patch.streaming import AdaptiveChecker, ModelStats, Turn, split_stream
from support.streams import LAST, MODEL, REST, START, Source, same, say

TEXT = [say("Good "), say("morning."), LAST]
CALL = [say(), START, REST, LAST]
TEXT_FIRST = [say("Let me see."), START, REST, LAST]


def answer_of(checker: AdaptiveChecker, chunks: list[AIMessageChunk], model=MODEL) -> bool:
    """Split a turn and read it to its end."""
    answer, replay = split_stream(chunks, checker=checker, model=model)
    assert same(list(replay), chunks)
    return answer


def stats_of(checker: AdaptiveChecker, model: str = MODEL) -> ModelStats:
    """The counts of one model."""
    return checker.stats()[model]


def test_a_decision_is_early_only_after_twenty_turns_with_calls():
    """Nineteen are not enough, text-only turns do not count, the twentieth is."""
    checker = AdaptiveChecker()
    for _ in range(19):
        assert answer_of(checker, CALL)
        assert not answer_of(checker, TEXT)
    assert stats_of(checker) == ModelStats(38, 19, 0, 0, 19 * 2 + 19 * 3, 0, 19)
    assert answer_of(checker, CALL)
    assert not answer_of(checker, TEXT)
    assert stats_of(checker) == ModelStats(40, 20, 1, 0, 20 * 2 + 19 * 3 + 1, 0, 20)


def test_a_turn_with_text_first_puts_the_model_back():
    """It was read in full, so nothing was wrong; later answers are read in full, too."""
    checker = AdaptiveChecker(min_calls=1)
    assert answer_of(checker, TEXT_FIRST)
    for _ in range(5):
        assert answer_of(checker, CALL)
    assert not answer_of(checker, TEXT)
    assert stats_of(checker) == ModelStats(7, 6, 0, 0, 2 + 5 * 2 + 3, text_first=1, calls_since=5)


def test_a_mistake_is_forgotten_after_a_while():
    """After `forget_after` turns with calls and no text before them, a text decides again."""
    checker = AdaptiveChecker(min_calls=1, forget_after=4)
    assert answer_of(checker, CALL)
    assert not answer_of(checker, TEXT_FIRST)  # a mistake
    assert stats_of(checker) == ModelStats(2, 2, 1, 1, 3, text_first=1, calls_since=0)
    for _ in range(3):
        assert answer_of(checker, CALL)
    assert answer_of(checker, TEXT_FIRST)  # read in full, so no mistake; the count starts again
    assert stats_of(checker).wrong == 1
    for _ in range(4):
        assert answer_of(checker, CALL)
        early = stats_of(checker).early
        assert not answer_of(checker, TEXT)
    assert stats_of(checker).early == early + 1
    assert stats_of(checker).text_first == 2


def test_text_in_the_chunk_of_a_call_is_not_text_first():
    """A checker that reads that chunk sees the call."""
    checker = AdaptiveChecker(min_calls=1)
    both = AIMessageChunk("See:", tool_call_chunks=START.tool_call_chunks)
    assert answer_of(checker, [both, REST, LAST])
    assert stats_of(checker) == ModelStats(1, 1, 0, 0, 1, 0, 1)


def test_a_whole_message_with_text_and_a_call_is_not_counted():
    """It does not show which came first; one without text does, as there was none."""
    checker = AdaptiveChecker(min_calls=1)
    listed_call = {"name": "t", "args": {}, "id": "c1"}
    for text, calls in (("Let me see.", 0), ("", 1)):
        turn = Turn(checker, "openai:gpt-5")
        turn.take(AIMessage(text, tool_calls=[listed_call]))
        assert turn.answer is True
        assert checker.stats().get("openai:gpt-5", ModelStats()).calls == calls


def test_models_are_learned_apart_and_an_unknown_one_never():
    """The counts of one model do not change the decisions about another one."""
    checker = AdaptiveChecker(min_calls=1)
    assert answer_of(checker, CALL)
    assert not answer_of(checker, TEXT, model="anthropic:claude-x")
    assert not answer_of(checker, TEXT, model=None)
    assert checker.stats() == {
        MODEL: ModelStats(1, 1, 0, 0, 2, 0, 1),
        "anthropic:claude-x": ModelStats(1, 0, 0, 0, 3),
    }


def named(chunk: AIMessageChunk, **metadata: Any) -> AIMessageChunk:
    """The chunk with metadata of the response."""
    return chunk.model_copy(update={"response_metadata": metadata})


PROVIDER = {"model_provider": "groq"}
NAME = {"model_name": "llama"}
PLACES = {
    "first": ({**PROVIDER, **NAME}, PROVIDER),
    "last": (PROVIDER, {**PROVIDER, **NAME}),
    "first and last": ({**PROVIDER, **NAME}, {**PROVIDER, **NAME}),
    "name only at the end": (PROVIDER, NAME),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_model_has_one_key_whichever_chunk_names_it(place):
    """OpenAI, Groq, Mistral and Bedrock name the model at the end, Claude at the beginning."""
    first, last = PLACES[place]
    checker = AdaptiveChecker(min_calls=1)
    turn = [named(say(), **first), START, REST, named(LAST, **last)]
    assert answer_of(checker, turn, model=None)
    text = [named(say("Good "), **first), say("day."), named(LAST, **last)]
    source = Source(text)
    answer, chunks = split_stream(source, checker=checker)
    assert (answer, source.read) == (False, 1)
    assert same(list(chunks), text)
    assert checker.stats() == {"groq:llama": ModelStats(2, 1, 1, 0, 3, 0, 1)}


def test_a_late_call_of_a_model_that_is_not_named_yet_is_learned():
    """It is a mistake of the only model of the provider."""
    checker = AdaptiveChecker(min_calls=1)
    end = named(LAST, **PROVIDER, **NAME)
    assert answer_of(checker, [START, REST, end], model=None)
    turn = [named(say("Let me see."), **PROVIDER), START, REST, end]
    assert not answer_of(checker, turn, model=None)
    assert stats_of(checker, "groq:llama").wrong == 1
    assert answer_of(checker, turn, model=None)


def test_with_two_models_of_one_provider_a_late_name_is_no_guess():
    """Each is counted for itself, and none is decided by the counts of the other."""
    checker = AdaptiveChecker(min_calls=1)
    for name in ("llama", "qwen"):
        end = named(LAST, **PROVIDER, model_name=name)
        assert answer_of(checker, [named(START, **PROVIDER), REST, end], model=None)
    source = Source([named(say("Good day."), **PROVIDER), named(LAST, **PROVIDER, **NAME)])
    assert split_stream(source, checker=checker)[0] is False
    assert source.read == 2
    assert checker.stats().keys() == {"groq:llama", "groq:qwen"}


def test_the_models_are_bounded_and_a_further_one_is_read_in_full():
    """No counts are dropped for another model's, since they may hold a mistake."""
    checker = AdaptiveChecker(min_calls=1, max_models=1)
    assert answer_of(checker, CALL)
    for _ in range(3):
        assert answer_of(checker, CALL, model="x:y")
        assert not answer_of(checker, TEXT, model="x:y")
    assert checker.stats() == {MODEL: ModelStats(1, 1, 0, 0, 2, 0, 1)}


def test_reset_deletes_the_counts_and_stats_is_a_copy():
    """Changing what `stats` returned changes nothing; `reset` starts again."""
    checker = AdaptiveChecker(min_calls=1)
    assert answer_of(checker, CALL)
    checker.stats().clear()
    assert checker.stats() == {MODEL: ModelStats(1, 1, 0, 0, 2, 0, 1)}
    checker.reset()
    assert checker.stats() == {}


def test_a_turn_that_is_not_read_to_its_end_is_not_counted():
    """Neither after an error of the stream nor when the caller closes it."""
    checker = AdaptiveChecker(min_calls=1)
    split_stream(Source([say("a")], ConnectionError()), checker=checker, model=MODEL)
    _, chunks = split_stream(CALL, checker=checker, model=MODEL)
    with chunks:
        next(chunks)
    assert checker.stats() == {}


@pytest.mark.parametrize("option", ["min_calls", "forget_after", "max_models"])
@pytest.mark.parametrize("value", [0, "20", 1.5])
def test_a_number_below_one_is_a_clear_error(option, value):
    """The option and its value are named, also if it is no whole number."""
    with pytest.raises(OptionError, match=f"{option}={value!r} is invalid"):
        AdaptiveChecker(**{option: value})


def test_threads_lose_no_turn():
    """Eight threads, 4,000 turns: every one is counted."""
    checker = AdaptiveChecker()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: answer_of(checker, [START]), range(4000)))
    assert stats_of(checker) == ModelStats(4000, 4000, 0, 0, 4000, 0, 4000)
