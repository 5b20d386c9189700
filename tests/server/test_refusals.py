"""What the real integrations raise if a provider refuses a history, and what they raise else."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from botocore.config import Config
from langchain_anthropic import ChatAnthropic
from langchain_aws import ChatBedrockConverse
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_deepseek import ChatDeepSeek
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_groq import ChatGroq
from langchain_mistralai import ChatMistralAI
from langchain_openai import ChatOpenAI

from langgraph_patch.graph.refusal import is_refusal, refusal_text
from langgraph_patch.history.plain_form import plain_form
from langgraph_patch.history.refused import repair_refused
from support.bound import BoundModel

pytestmark = pytest.mark.server

KEY: Any = "k"
TEXT = "messages.1.content.0: Invalid `signature` in `thinking` block."


def of_openai(text: str, status: int) -> Any:
    """The body of OpenAI, Groq and DeepSeek."""
    return {"error": {"message": text, "type": "invalid_request_error", "code": None}}


def of_bedrock(url: str) -> Any:
    """Claude on Bedrock, which botocore would ask five times."""
    return ChatBedrockConverse(
        model="anthropic.claude-sonnet-4-6-v1:0",
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=KEY,
        endpoint_url=url,
        config=Config(retries={"total_max_attempts": 1}),
    )


INTEGRATIONS: dict[str, tuple[Any, Any]] = {
    "OpenAI Chat Completions": (
        lambda url: ChatOpenAI(model="gpt-5", api_key=KEY, base_url=url, max_retries=0),
        of_openai,
    ),
    "OpenAI Responses": (
        lambda url: ChatOpenAI(
            model="gpt-5", api_key=KEY, base_url=url, max_retries=0, use_responses_api=True
        ),
        of_openai,
    ),
    "Anthropic": (
        lambda url: ChatAnthropic(model="claude-x", api_key=KEY, base_url=url, max_retries=0),
        lambda text, _: {
            "type": "error",
            "error": {"type": "invalid_request_error", "message": text},
            "request_id": "req_1",
        },
    ),
    "Gemini": (
        lambda url: ChatGoogleGenerativeAI(
            model="gemini-x", api_key=KEY, base_url=url, max_retries=1
        ),
        lambda text, status: {
            "error": {"code": status, "message": text, "status": "INVALID_ARGUMENT"}
        },
    ),
    "Mistral": (
        lambda url: ChatMistralAI(model="mistral-x", api_key=KEY, endpoint=url, max_retries=1),
        lambda text, _: {"object": "error", "message": text, "code": "3230"},
    ),
    "Bedrock": (of_bedrock, lambda text, _: {"message": text}),
    "Groq": (
        lambda url: ChatGroq(model="groq-x", api_key=KEY, base_url=url, max_retries=0),
        of_openai,
    ),
    "DeepSeek": (
        lambda url: ChatDeepSeek(model="deepseek-x", api_key=KEY, api_base=url, max_retries=0),
        of_openai,
    ),
}
AWS_TYPES = {400: "ValidationException", 403: "AccessDeniedException", 429: "ThrottlingException"}


@contextmanager
def provider(status: int, body: Any) -> Any:
    """The address of a server that gives one answer to every request."""
    data = json.dumps(body).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("x-amzn-ErrorType", AWS_TYPES.get(status, "InternalServerException"))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


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


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_a_refusal_of_the_provider(name):
    """Status 400, invoked, streamed and asynchronous, and 422; with the provider's text."""
    new_model, body = INTEGRATIONS[name]
    with provider(400, body(TEXT, 400)) as url:
        errors = [error_of(new_model(url), way) for way in ("invoke", "stream", "ainvoke")]
    with provider(422, body(TEXT, 422)) as url:
        errors.append(error_of(new_model(url)))
    assert [is_refusal(error) for error in errors] == [True] * 4
    assert all(TEXT in refusal_text(error) for error in errors)


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_an_answer_that_is_no_refusal(name):
    """Keys, rights, names, limits and faults of the server: the history is not what is wrong."""
    new_model, body = INTEGRATIONS[name]
    found = {}
    for status in (401, 403, 404, 408, 409, 413, 429, 500, 503, 529):
        with provider(status, body("no", status)) as url:
            found[status] = is_refusal(error_of(new_model(url)))
    with provider(200, {}) as gone:
        pass
    found["gone"] = is_refusal(error_of(new_model(gone)))
    assert not any(found.values()), found


NOWHERE = "http://127.0.0.1:9"
ASK = HumanMessage("Rain?")
ROLES = {
    "function": FunctionMessage("r", name="f"),
    "chat": ChatMessage("r", role="tool"),
    "search": AIMessage(
        [
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        ],
        response_metadata={"model_provider": "anthropic"},
    ),
    "system": SystemMessage("Be brief."),
}
OF_REQUESTS = [
    ("Anthropic", [SystemMessage("A."), ASK, ROLES["system"]]),
    ("Anthropic", [ASK, ROLES["function"]]),
    ("OpenAI Responses", [ASK, ROLES["chat"]]),
    ("Gemini", [ASK, ROLES["chat"]]),
    ("Mistral", [ASK, ROLES["function"]]),
    ("Bedrock", [ASK, ROLES["function"]]),
    ("Bedrock", [ASK, ROLES["search"]]),
]


@pytest.mark.parametrize(("name", "history"), OF_REQUESTS)
@pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke"])
def test_an_error_while_the_request_is_made(name, history, way):
    """The integration raises a `ValueError` or a `KeyError`, and nothing is sent."""
    error = error_of(INTEGRATIONS[name][0](NOWHERE), way, history)
    assert isinstance(error, ValueError | KeyError | TypeError)
    assert is_refusal(error)


def test_a_request_that_botocore_refuses():
    """It has the error's type, and comes before anything is sent."""
    calls: Any = [{"name": "f", "args": {}, "id": None}]
    tool = {"name": "f", "description": "f", "input_schema": {"type": "object"}}
    model = INTEGRATIONS["Bedrock"][0](NOWHERE).bind_tools([tool])
    error = error_of(model, "invoke", [ASK, AIMessage("", tool_calls=calls)])
    assert type(error).__name__ == "ParamValidationError"
    assert is_refusal(error)


class Guard(BaseCallbackHandler):
    """An application's handler that refuses what a model reads, or its answer."""

    raise_error = True

    def __init__(self, at: str) -> None:
        setattr(self, at, self.refuse)

    def refuse(self, *_: Any, **__: Any) -> None:
        """Refuse."""
        raise ValueError("not here")


def test_an_error_of_the_application_is_none():
    """Of a callback, before or after the request, and of a model of its own."""
    message = {"role": "assistant", "content": "hm"}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "model": "m"}
    with provider(200, {**body, "id": "1", "object": "chat.completion", "created": 1}) as url:
        for at in ("on_chat_model_start", "on_llm_end"):
            model = INTEGRATIONS["OpenAI Chat Completions"][0](url)
            error = error_of(model, callbacks=[Guard(at)])
            assert (str(error), is_refusal(error)) == ("not here", False)

    class Checked(ChatOpenAI):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            return check(messages)

    def check(messages: Any) -> Any:
        raise ValueError(f"{messages[0].text} is private")

    assert not is_refusal(error_of(Checked(model="m", api_key=KEY)))
    assert not is_refusal(error_of(GenericFakeChatModel(messages=iter([]))))


def test_an_error_of_an_answer_is_none():
    """A server that reports its error with status 200 has read the history."""
    with provider(200, {"error": {"message": "overloaded", "code": "server_error"}}) as url:
        error = error_of(INTEGRATIONS["OpenAI Chat Completions"][0](url))
    assert isinstance(error, ValueError)
    assert not is_refusal(error)


# --- bound thinking -------------------------------------------------------------------------------


def test_thinking_that_is_bound_to_what_was_sent_before_it():
    """Appending keeps it valid; any change before it does not, until it is removed."""
    model = BoundModel()
    history: list[Any] = [ASK]
    for _ in range(3):
        history += [model.invoke(history), HumanMessage("And?")]
    assert model.refused == []
    edited = [HumanMessage("Snow?"), *history[1:]]
    error = error_of(model, "invoke", edited)
    assert is_refusal(error)
    patch = repair_refused(edited, refusal_text(error))
    assert [change.index for change in patch.changes] == [1, 3, 5]
    assert model.invoke(patch.messages).text == "done"
    assert model.invoke(plain_form(edited).messages).text == "done"


def test_thinking_of_the_turn_that_runs_stays():
    """Claude 4 demands it there: the first repair keeps it, the plain form has none."""
    model = BoundModel(script=["hello", [("look", {})]], binds=False, demands=True)
    history: list[Any] = [ASK]
    history += [model.invoke(history), HumanMessage("And?")]
    history += [model.invoke(history), ToolMessage("rain", tool_call_id="toolu_2_0")]
    patch = repair_refused(history, "Invalid `signature` in `thinking` block")
    assert [change.index for change in patch.changes] == [1]
    assert model.invoke(patch.messages).text == "done"
    assert "Expected `thinking`" in str(error_of(model, "invoke", plain_form(history).messages))
