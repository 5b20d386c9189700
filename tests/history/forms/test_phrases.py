"""What the texts of refusals name: phrases of the providers, and nothing else."""

import json
import re

import pytest

from langgraph_patch.history.forms.phrases import PHRASES, matters_in
from support.paths import PAGES

SENTENCES = {
    "image": (
        "messages.3.content.1.image.source.base64.data: Could not process image",
        (
            "messages.1.content.2.image.source.base64: image exceeds 5 MB maximum: 6275800 "
            "bytes > 5242880 bytes"
        ),
        (
            "messages.88.content.1.image.source.base64.data: At least one of the image "
            "dimensions exceed max allowed size for many-image requests: 2000 pixels"
        ),
        "You uploaded an unsupported image. Please make sure your image is valid.",
        "At most 1 image(s) may be provided in one request.",
        "Unable to process input image. Please retry or report in https://developers",
    ),
    "file": (
        "The PDF specified was not valid.",
        "Failed to process: the document source bytes could not be parsed as PDF",
        "Unsupported document format. Only txt and pdf are supported.",
    ),
    "media": (
        "Unsupported MIME type: image/jpg",
        "Error while downloading https://example.com/a.png.",
    ),
    "no_media": (
        "Invalid content type. image_url is only supported by certain models.",
        (
            "Failed to deserialize the JSON body into the target type: messages[1]: unknown "
            "variant `image_url`, expected `text` at line 1 column 679289"
        ),
        "400 Image input modality is not enabled for models/m",
        "DeepSeek-V4-Flash is not a multimodal model",
    ),
    "user_after_tool": (
        "Unexpected role 'user' after role 'tool'",
        "Unexpected role 'Roles.user' after role 'Roles.tool'",
        "Conversation blocks and tool result blocks cannot be provided in the same turn.",
    ),
    "alternation": (
        "Conversation roles must alternate user/assistant/user/assistant/...",
        (
            "After the optional system message, conversation roles must alternate "
            "user/assistant/user"
        ),
        "A conversation must alternate between user and assistant roles. Make sure",
        (
            'messages: roles must alternate between "user" and "assistant", but found multiple '
            '"user"'
        ),
        ("After the (optional) system message(s), user and assistant roles should be alternating."),
        "Please ensure that multiturn requests alternate between user and model.",
    ),
    "end": (
        (
            "This model does not support assistant message prefill. The conversation must end "
            "with a user message."
        ),
        (
            "Expected last role User or Tool (or Assistant with prefix True) for serving but "
            "got assistant"
        ),
        "Assistant response prefill is incompatible with enable_thinking.",
        (
            "Please ensure that single turn requests end with a user role or the role field is "
            "empty."
        ),
        "Please ensure that multiturn requests ends with a user role or a function response",
    ),
    "account": (
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing",
        "You have reached your specified API usage limits. You will regain access on 2026-04-01",
        "Access denied, please make sure your account is in good standing.",
        "Billing hard limit has been reached",
    ),
}
"""Sentences as they were posted, for each matter."""

OTHERS = [
    "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    "tools.3.image: Input should be a valid dictionary",
    "messages.0.content.0.type: Input should be 'text', 'image', 'document', 'tool_use'",
    "Invalid schema for function 'read_image': 'file' is not of type 'object'",
    "Tool 'end_with_user' must have a role",
    "The tool 'process_image' could not be found among the tools",
    "messages: Unexpected role 'tool' after role 'user'",
    "Unexpected role 'tool' after role 'system'",
    "Invalid value: 'developer'. Supported values are: 'system', 'assistant', 'user', 'function'",
    "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "Your request was rejected as a result of our safety system.",
    "No se pudo procesar la imagen",
    "\u56fe\u7247\u65e0\u6cd5\u5904\u7406",
    "",
]
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
    """Of the errors that are about something else."""
    sections = PAGES["errors"].read_text("utf-8").split("\n## ")
    about = [each for each in sections if each.startswith(ABOUT)]
    others = [each for each in sections if each not in about]
    assert len(about) == len(ABOUT)
    texts = [line for each in others for line in re.findall(r"^### (.+)$", each, re.MULTILINE)]
    assert len(texts) > 60
    assert [text for text in texts if matters_in(text)] == []
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
