"""What a refusal names, by phrases of the providers' own sentences.

A phrase is part of a sentence that a provider, or a server, answers with, and never a word alone:
*image*, *role* or *user* stand in names of tools, in schemas, and in refusals of other matters.
Each has a place where it was seen. `*` stands for a few characters: a number, a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, Literal

Matter = Literal[
    "image", "file", "media", "no_media", "user_after_tool", "alternation", "end", "account"
]

OF_MEDIA: Final = frozenset[Matter]({"image", "file", "media", "no_media"})

PHRASES: Mapping[Matter, Mapping[str, str]] = {
    # A picture that the model cannot read.
    "image": {
        "Could not process image": "anthropics/claude-code/issues/56511",
        "image exceeds * MB maximum": "daya0576/pi-imessage/issues/5",
        "image dimensions exceed max allowed size": "anthropics/claude-code/issues/52220",
        "Image does not match the provided media type": "anthropics/claude-code/issues/15746",
        "but the image appears to be a": "home-assistant/core/issues/167208",
        "image.source.base64.media_type: Input should be": "anthropics/claude-code/issues/8184",
        "image cannot be empty": "anthropics/claude-code/issues/12750",
        "image.source.base64: invalid base64 data": "Yeachan-Heo/gajae-code/pull/2806",
        "You uploaded an unsupported image": "CosmosShadow/gptpdf/issues/6",
        "does not represent a valid image": "acoyfellow/my-ax/issues/68",
        "Failed to download image": "riverscuomo/cuomputer/issues/95",
        "Provided image is not valid": "AmberSahdev/Open-Interface/issues/64",
        "Unable to process input image": "google-gemini/gemini-cli/issues/5064",
        "At most * image(s) may be provided": "vllm-project/vllm/issues/13513",
    },
    # A document that it cannot read.
    "file": {
        "Could not process PDF": "anthropics/anthropic-sdk-python/issues/903",
        "The PDF specified was not valid": "anthropics/claude-code/issues/5174",
        "document source bytes could not be parsed": "maximhq/bifrost/issues/5472",
        "Unsupported document format": "boto/boto3/issues/4726",
    },
    # One of these, or a sound or a film.
    "media": {
        "Timeout while downloading": "vercel/ai/issues/8857",
        "Error while downloading": "openai/openai-python/pull/2790",
        "Failed to download multimodal content": "agentscope-ai/agentscope-java/issues/2700",
        "Unsupported MIME type": "charmbracelet/crush/issues/995",
    },
    # The model reads none at all.
    "no_media": {
        "image_url is only supported by certain models": "browser-use/web-ui/issues/274",
        "unknown variant 'image_url'": "rikkahub/rikkahub/issues/1433",
        "Image input modality is not enabled": "google/generative-ai-docs/issues/513",
        "This model doesn't support the document field": (
            "aws-samples/amazon-bedrock-client-for-mac/issues/137"
        ),
        "image input is not supported": "llamastash/llamastash/issues/13",
        "is not a multimodal model": "vllm-project/vllm",
    },
    "user_after_tool": {
        "Unexpected role '*user' after role '*tool'": (
            "nicholasgriffintn/ai-platform/issues/414"  # mistral-common's validator
        ),
        "Conversation blocks and tool result blocks cannot be provided in the same turn": (
            "strands-agents/harness-sdk/issues/1223"
        ),
    },
    "alternation": {
        "conversation roles must alternate user/assistant": "vllm-project/vllm/issues/6862",
        "roles must alternate between 'user' and 'assistant'": "langgenius/dify/issues/9294",
        "must alternate between user and assistant roles": "langchain-ai/langchain-aws/issues/130",
        "user and assistant roles should be alternating": (
            "perplexityai/api-discussion/issues/265"
        ),
        "multiturn requests alternate between user and model": (
            "NousResearch/hermes-agent/pull/55623"
        ),
    },
    # The history ends with a message of a model.
    "end": {
        "does not support assistant message prefill": "cortexkit/magic-context/issues/511",
        "Expected last role User or Tool": "0xPlaygrounds/rig/issues/708",
        "Assistant response prefill is incompatible": "ggml-org/llama.cpp/issues/20861",
        "turn requests end with a user role": "microsoft/semantic-kernel/pull/13288",
        "turn requests ends with a user role": "songquanpeng/one-api/issues/836",
    },
    # The account, with the status of a refused request: no history helps.
    "account": {
        "Your credit balance is too low": "anthropics/claude-code/issues/66314",
        "You have reached your specified API usage limits": "anthropics/claude-code/issues/2127",
        "make sure your account is in good standing": "QwenLM/qwen-code/issues/54",
        "Billing hard limit has been reached": "dfinke/PowerShellAI/issues/127",
    },
}
"""Matter -> phrase -> where it was seen, on GitHub."""


def matters_in(refusal: str) -> set[Matter]:
    r"""The matters that the text of a refusal names.

    Args:
        refusal: The text, in whatever way its quotes, blanks and capitals are written.

    Examples:
        >>> from langgraph_patch.history.forms.phrases import matters_in
        >>> matters_in('{"message": "Unexpected role \"user\" after role \"tool\""}')
        {'user_after_tool'}
        >>> matters_in("tools.0.image: Input should be a valid dictionary")
        set()
    """
    text = _plain(refusal)
    return {matter for matter, phrases in _patterns().items() if phrases.search(text)}


def speaks_of_calls(refusal: str) -> bool:
    r"""Whether a refusal speaks of a call without a result.

    A history that ends with a call ends with a message of a model, too.

    Args:
        refusal: The text.

    Examples:
        >>> from langgraph_patch.history.forms.phrases import speaks_of_calls
        >>> speaks_of_calls("messages.2: `tool_use` ids were found without `tool_result` blocks")
        True
        >>> speaks_of_calls("messages.0.content.0: Could not process image")
        False
    """
    return bool(_OF_CALLS.search(_plain(refusal))) or "end" in matters_in(refusal)


_OF_CALLS = re.compile(
    r"tool_result|tool messages|toolresult|function response|response messages|tool output"
    r"|corresponding toolmessage|calls and responses|call and result"
    r"|tool_?calls?.{0,60}(?:followed|result)|no result"
)
"""Words of the sentences about a call without its result (the page *Find your error* has them)."""


@cache
def _patterns() -> Mapping[Matter, re.Pattern[str]]:
    """For each matter a pattern of its phrases."""
    return {
        matter: re.compile("|".join(map(_pattern, phrases))) for matter, phrases in PHRASES.items()
    }


def _pattern(phrase: str) -> str:
    return re.escape(_plain(phrase)).replace(r"\*", ".{0,40}?")


def _plain(text: str) -> str:
    """A text with one kind of quotes, single blanks and no capitals."""
    quoted = re.sub(r"\\*[\"'`\u2018\u2019]", "'", text)
    return re.sub(r"(?:\s|\\n)+", " ", quoted).lower()
