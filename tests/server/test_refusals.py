"""What the real integrations raise if a provider refuses a history, and what they raise else."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
)
from langchain_openai import ChatOpenAI

from langgraph_patch import patch_model
from langgraph_patch.asking.refusal import is_refusal, refusal_text
from support.provider_server import INTEGRATIONS, Answer, ProviderServer, Turn
from support.refused import FOUND, SEARCH, claude

NOWHERE = "http://127.0.0.1:9"
TEXT = "messages.1.content.0: Invalid `signature` in `thinking` block."
NAMES = [name for name in INTEGRATIONS if name != "Anthropic, thinking"]


def error_of(model: Any, way: str = "invoke", history: Any = "Rain?", **config: Any) -> Exception:
    """What the model raises."""
    calls = {
        "invoke": lambda: model.invoke(history, config),
        "stream": lambda: list(model.stream(history, config)),
        "ainvoke": lambda: asyncio.run(model.ainvoke(history, config)),
    }
    try:
        calls[way]()
    except Exception as error:  # noqa: BLE001 - each integration has its own
        return error
    raise AssertionError("the model answered")


@pytest.mark.parametrize("name", NAMES)
def test_a_refusal_of_the_provider(name):
    """Status 400, invoked, streamed and asynchronous, and 422; with the provider's text."""
    answers = [Answer(status, TEXT) for status in (400, 400, 400, 422)]
    with ProviderServer(INTEGRATIONS[name], *answers) as server:
        ways = ("invoke", "stream", "ainvoke", "invoke")
        errors = [error_of(server.model, way) for way in ways]
    assert [is_refusal(error) for error in errors] == [True] * 4
    assert all(TEXT in refusal_text(error) for error in errors)


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_that_is_no_refusal(name):
    """Keys, rights, names, limits and faults of the server: the history is not what is wrong."""
    codes = (401, 403, 404, 408, 409, 413, 429, 500, 503, 529)
    with ProviderServer(INTEGRATIONS[name], *[Answer(code, "no") for code in codes]) as server:
        found = [code for code in codes if is_refusal(error_of(server.model))]
    assert len(server.requests) == len(codes)
    nowhere = INTEGRATIONS[name].new_model(NOWHERE)
    assert (found, is_refusal(error_of(nowhere))) == ([], False)


ASK = HumanMessage("Rain?")
ROLES = {
    "function": FunctionMessage("r", name="f"),
    "chat": ChatMessage("r", role="tool"),
    "search": claude(SEARCH, FOUND),
    "system": SystemMessage("Be brief."),
}
NO_ID = AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": None, "type": "tool_call"}])
OF_REQUESTS = [
    ("Anthropic", [SystemMessage("A."), ASK, ROLES["system"]]),
    ("Anthropic", [ASK, ROLES["function"]]),
    ("OpenAI Responses", [ASK, ROLES["chat"]]),
    ("Gemini", [ASK, ROLES["chat"]]),
    ("Mistral", [ASK, ROLES["function"]]),
    ("Bedrock", [ASK, ROLES["function"]]),
    ("Bedrock", [ASK, ROLES["search"]]),
    ("Bedrock", [ASK, NO_ID]),
]


@pytest.mark.parametrize(
    ("name", "history", "way"),
    [(*each, ("invoke", "stream", "ainvoke")[n % 3]) for n, each in enumerate(OF_REQUESTS)],
)
def test_an_error_while_the_request_is_made(name, history, way):
    """The integration raises a `ValueError` or a `KeyError`, and nothing is sent.

    That of botocore has a type of its own.
    """
    tool = {"name": "f", "description": "f", "input_schema": {"type": "object"}}
    model = INTEGRATIONS[name].new_model(NOWHERE).bind_tools([tool])
    error = error_of(model, way, history)
    is_of_botocore = history[-1] is NO_ID
    assert is_of_botocore or isinstance(error, ValueError | KeyError | TypeError)
    assert (type(error).__name__ == "ParamValidationError") is is_of_botocore
    assert is_refusal(error)


class Guard(BaseCallbackHandler):
    """An application's handler that refuses what a model reads, or its answer."""

    raise_error = True

    def __init__(self, at: str) -> None:
        setattr(self, at, self.refuse)

    def refuse(self, *_: Any, **__: Any) -> None:
        raise ValueError("not here")


def test_an_error_of_the_application_is_none():
    """Of a callback, before or after the request, and of a model of its own."""
    message = {"role": "assistant", "content": "hm"}
    body: Any = {
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "model": "m",
    }
    body |= {"id": "1", "object": "chat.completion", "created": 1}
    for at in ("on_chat_model_start", "on_llm_end"):
        with ProviderServer(INTEGRATIONS["OpenAI Chat Completions"], Answer(200, body)) as server:
            error = error_of(server.model, callbacks=[Guard(at)])
        assert (str(error), is_refusal(error)) == ("not here", False)

    class Checked(ChatOpenAI):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            return check(messages)

    def check(messages: Any) -> Any:
        raise ValueError(f"{messages[0].text} is private")

    assert not is_refusal(error_of(Checked(model="m", api_key=TEXT)))
    assert not is_refusal(error_of(GenericFakeChatModel(messages=iter([]))))


def test_an_error_of_an_answer_is_none():
    """A server that reports its error with status 200 has read the history."""
    body = {"error": {"message": "overloaded", "code": "server_error"}}
    with ProviderServer(INTEGRATIONS["OpenAI Chat Completions"], Answer(200, body)) as server:
        error = error_of(server.model)
    assert isinstance(error, ValueError)
    assert not is_refusal(error)


# --- a picture that a provider refuses ----------------------------------------------------------

SEEN = AIMessage("A cat.", id="a1")
PICTURE = HumanMessage(
    [
        {"type": "text", "text": "What is it?"},
        {"type": "image", "base64": "YmFk", "mime_type": "image/png"},
    ],
    id="h1",
)
SENTENCES = {
    "Anthropic": "messages.0.content.1.image.source.base64.data: Could not process image",
    "Gemini": "Unable to process input image. Please retry or report",
}


@pytest.mark.parametrize(
    ("name", "way"), [(name, ["stream", "astream"][n % 2]) for n, name in enumerate(NAMES)]
)
def test_a_picture_is_left_out_where_the_provider_says_so(name, way):
    """By the real SDKs: the second request has a text in its place, and is answered."""
    refused = Answer(400, SENTENCES.get(name, "You uploaded an unsupported image."))
    with ProviderServer(INTEGRATIONS[name], refused, Turn(["A cat, ", "I said."])) as server:
        model = patch_model(server.model)
        history = [PICTURE, SEEN, HumanMessage("And now?")]

        async def read() -> str:
            return "".join([chunk.text async for chunk in model.astream(history)])

        answer = (
            asyncio.run(read())
            if way == "astream"
            else "".join(chunk.text for chunk in model.stream(history))
        )
    assert answer == "A cat, I said."
    first, second = map(json.dumps, server.requests)
    assert "YmFk" in first
    assert "YmFk" not in second
    assert "not sent, because the provider refused the request" in second
