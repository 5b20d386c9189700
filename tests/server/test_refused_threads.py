"""Threads in the states that providers refuse live on, in each place and on each wire."""

import warnings
from functools import partial
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START

from asked_table import SERVERS
from asked_table import turns as turns_of_server
from bound_table import CASES, turns
from kit import Desk
from langgraph_patch import with_patching
from support import asked
from support.provider_server import INTEGRATIONS, TURNS, WORDS, ProviderServer
from support.refused import (
    BLANK,
    CLAUDE,
    CONFIG,
    FOREIGN,
    FOUND,
    PLACES,
    SEARCH,
    STATES,
    TEXT,
    THINKING,
    WAYS,
    RefusingModel,
    call_block,
    in_three_turns,
    reasoning,
)
from support.streams import weather
from support.wires import WIRES, reason

DEAD = {
    "openai-chat": 10,
    "openai-responses": 8,
    "anthropic": 16,
    "gemini": 0,
    "mistral": 19,
    "bedrock": 4,
}
"""How many of the states each wire refuses in the bare graph."""


PATCHED = [place for place in PLACES if place != "bare"]


@pytest.mark.parametrize("wire", WIRES)
def test_every_state_on_every_wire(wire, pytestconfig):
    """Refused in the bare graph in every turn, answered with at most two further requests here.

    What can be stored is stored, so that the second turn needs one request; but on a wire that
    refuses the form of another provider as well. `patch_model` has no state to write. Each state
    is in another place, and of those that are accepted a third; with `--long`, in all.
    """
    states, rule = {**STATES, **FOREIGN, **BLANK}, partial(reason, wire)
    refused = set()
    for number, (name, (history, _)) in enumerate(states.items(), WIRES.index(wire)):
        bare = in_three_turns("bare", rule, history)
        places = [PATCHED[number % len(PATCHED)]]
        if pytestconfig.getoption("--long"):
            places = PATCHED
        elif bare == [1, 1, 1] and number % 3:
            continue
        for place in places:
            found = in_three_turns(place, rule, history)
            if bare == [1, 1, 1]:
                assert found == bare, (name, place)
                continue
            assert bare == [0, 0, 0], name
            refused.add(name)
            stored = [] if place == "patch_model" else [[2, 1, 1], [3, 2, 2]]
            assert found in [*stored, [2, 2, 2], [3, 3, 3]], (name, place)
    assert len(refused) == DEAD[wire]


@pytest.mark.parametrize("server", SERVERS)
def test_a_picture_an_order_or_an_end_that_a_server_refuses(server, pytestconfig):
    """A thread lives from its first turn on; with a picture in the newest message from the next.

    Each place does the same: each state is in a second one; with `--long`, in all.
    """
    first, *others = PATCHED
    for number, state in enumerate(asked.STATES, [*SERVERS].index(server)):
        places = others if pytestconfig.getoption("--long") else [others[number % len(others)]]
        expected = turns_of_server(first, server, state)
        assert 0 not in expected[1:]
        assert expected[0] or state == "a picture in the newest message"
        for place in places:
            assert turns_of_server(place, server, state) == expected, (state, place)


# --- a thread that changes its model --------------------------------------------------------------


def calling_answer(wire: str, number: int) -> AIMessage:
    """A message in the form of a provider, with its reasoning, its own tools, and a call."""
    call_id = f"call{number:05}"
    call: Any = {"name": "mail", "args": {"to": "bob"}, "id": call_id, "type": "tool_call"}
    block = {"type": "tool_use", "id": call_id, "name": "mail", "input": {"to": "bob"}}
    item = {**call_block(f"fc_{number}", call_id), "name": "mail", "arguments": '{"to": "bob"}'}
    bedrock = {"text": "hm", "signature": "c2ln"}
    contents: dict[str, Any] = {
        "openai-chat": "",
        "openai-responses": [reasoning(number), item],
        "anthropic": [THINKING, SEARCH, FOUND, TEXT, block],
        "gemini": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, TEXT],
        "mistral": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, TEXT],
        "bedrock": [{"type": "reasoning_content", "reasoning_content": bedrock}, TEXT, block],
    }
    providers = {
        "openai-chat": {"model_provider": "openai"},
        "openai-responses": {"model_provider": "openai"},
        "anthropic": CLAUDE,
        "gemini": {"model_provider": "google_genai"},
        "mistral": {"model_provider": "mistralai"},
        "bedrock": {"model_provider": "bedrock_converse"},
    }
    return AIMessage(contents[wire], tool_calls=[call], response_metadata=providers[wire])


@pytest.mark.parametrize(
    ("place", "way"), [(place, ["invoke", "ainvoke"][n % 2]) for n, place in enumerate(PATCHED)]
)
def test_a_thread_that_changes_its_model_in_each_turn(place, way):
    """Six providers with reasoning, tools of their own and calls, one after the other, twice."""
    saver = InMemorySaver()
    warnings.filterwarnings("ignore", message="Server tool call")
    for number, wire in enumerate([*WIRES, *reversed(WIRES)], 1):
        model = RefusingModel(
            rule=partial(reason, wire),
            script=[calling_answer(wire, number), AIMessage(f"done {number}")],
        )
        graph = PLACES[place](model, Desk().tools(), checkpointer=saver)
        WAYS[way](graph, {"messages": [HumanMessage(f"ask {number}")]}, CONFIG)
        assert graph.get_state(CONFIG).values["messages"][-1].text == f"done {number}"
        assert len(model.seen) <= 6


# --- thinking that is bound -----------------------------------------------------------------------

HEALTHY = ["nothing", "placeholders"]


@pytest.mark.parametrize("case", CASES)
def test_a_thread_of_a_model_whose_thinking_is_bound(case):
    """Bare it dies with the change, patched every turn is answered; without one, in one request."""
    bare, patched = turns(case, lambda graph: graph), turns(case, with_patching)
    assert all(patched)
    assert all(bare) is (case in HEALTHY)
    if case in HEALTHY:
        assert patched == bare


@pytest.mark.parametrize("case", CASES)
def test_a_thread_of_a_model_that_demands_its_thinking(case):
    """Claude 4 in the turn that runs: as in the bare graph, with the same number of requests.

    It refuses a supervisor, whose messages about handoffs are none of the model.
    """
    bare = turns(case, lambda graph: graph, demands=True)
    assert turns(case, with_patching, demands=True) == bare
    assert all(bare) is (case != "a supervisor")


@pytest.mark.parametrize("way", WAYS)
def test_bound_thinking_in_every_way_to_run_a_graph(way):
    """Streamed as well, since a refusal comes before the first chunk."""
    assert all(turns("a late result", with_patching, way=way))


# --- clients of providers -------------------------------------------------------------------------

OVER_HTTP = {
    "Mistral": ("no text", 2),
    "Anthropic": ("a search without a result", 2),
    "OpenAI Chat Completions": ("Claude's search", 2),
    "OpenAI Responses": ("reasoning at the end", 2),
    "Groq": ("no text", 1),
    "Bedrock": ("Claude's search", 1),
}
"""A state for a provider on a loopback port, and how many requests reach it.

Bedrock's integration raises a `KeyError` before it sends the first one.
"""


@pytest.mark.parametrize(
    ("name", "way"), [*zip(OVER_HTTP, ["stream", "astream", "events"] * 2, strict=True)]
)
def test_a_client_of_a_provider_is_asked_again(name, way):
    """The real integration, refused with status 400 over HTTP, and then answered."""
    state, count = OVER_HTTP[name]
    history, _ = {**STATES, **FOREIGN}[state]
    with ProviderServer(INTEGRATIONS[name], TURNS["text"]) as server:
        graph = with_patching(create_agent(server.model, [weather], checkpointer=InMemorySaver()))
        graph.update_state(CONFIG, {"messages": history[:-1]}, as_node=START)
        WAYS[way](graph, {"messages": history[-1:]}, CONFIG)
    assert [bool(reasons) for reasons in server.refused] == [True] * (count - 1) + [False]
    assert graph.get_state(CONFIG).values["messages"][-1].text == "".join(WORDS)
