"""What the texts of refusals name: phrases of the providers, and nothing else."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from langgraph_patch.history.forms.phrases import PHRASES, matters_in
from support.paths import PAGES

SENTENCES = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text("utf-8"))
"""Refusals as they were posted, for each matter."""

OTHERS = SENTENCES.pop("other")
"""Refusals of other matters, in which single words stand, and in other languages."""


@pytest.mark.parametrize(("matter", "text"), [(m, t) for m, ts in SENTENCES.items() for t in ts])
def test_a_sentence_names_its_matter(matter, text):
    """As it was posted, and inside of a JSON body, with other quotes, breaks and capitals."""
    assert matters_in(text) == {matter}
    body = json.dumps({"error": {"message": text}})
    for written in (body, json.dumps(body), text.upper(), text.replace(" ", "\n  ")):
        assert matters_in(written) == {matter}


@pytest.mark.parametrize("text", OTHERS)
def test_another_refusal_names_none(text):
    """Words alone are no phrase."""
    assert matters_in(text) == set()


ABOUT = ("The order of roles", "A picture or a file", "The end of the history")
"""The sections of the page of errors that are about these matters."""


def test_the_texts_of_the_pages_name_none():
    """Of the errors that are about something else; some say only whether it is a refusal."""
    sections = PAGES["errors"].read_text("utf-8").split("\n## ")
    about = [each for each in sections if each.startswith(ABOUT)]
    others = [each for each in sections if each not in about]
    assert len(about) == len(ABOUT)
    texts = [line for each in others for line in re.findall(r"^### (.+)$", each, re.MULTILINE)]
    assert len(texts) > 60
    assert [text for text in texts if matters_in(text) - {"refused", "no_history"}] == []
    named = [line for each in about for line in re.findall(r"^### `+ ?(.+)`", each, re.MULTILINE)]
    assert len(named) > 8
    assert [text for text in named if not matters_in(text)] == []


def test_two_matters():
    """A text may name both."""
    text = f"{SENTENCES['image'][0]}; {SENTENCES['end'][0]}"
    assert matters_in(text) == {"image", "end"}


def test_each_phrase_is_a_phrase_with_its_source():
    """Several words, and a place where it was seen."""
    assert all(len(phrases) > 1 for phrases in PHRASES.values())
    for phrase, source in (item for phrases in PHRASES.values() for item in phrases.items()):
        assert len(re.findall(r"\w+", phrase)) >= 3
        assert re.fullmatch(r"[\w.-]+/[\w.-]+(/(issues|pull)/\d+)?", source)
