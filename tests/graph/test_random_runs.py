"""Random turns of agents whose models are refused, cut, silent or busy at random.

Nothing false is read, nothing is lost, done twice or left waiting, and no thread dies. The ledger
plays what happens to threads; here it is what happens to requests.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.types import Command

from kit import BARE, KINDS, NESTED, Agent, calls, streamed
from langgraph_patch import patch_model
from langgraph_patch.errors import UnfinishedError
from langgraph_patch.testing import RefusedError, check_request
from request_table import WAYS

pytestmark = [
    pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning"),
    pytest.mark.needs("v3", langgraph="1.2"),
]

AGENTS: dict[str, Any] = {
    **KINDS,
    **{kind: NESTED[kind] for kind in ("node", "swarm")},
    "patch_model": lambda model, *rest: BARE["hand_built"](patch_model(model), *rest),
}
ONE_TASK = {"hand_built", "react_v1", "patch_model"}
"""Kinds whose tool node runs all calls of a message in one task, so that nothing is recorded."""

SAYS = ("answer", "mail", "mails", "mail and wire", "wire", "cut", "mail and cut", "silent")
NOT_DONE = ("was not run", "waiting for human input", "could not be executed")
FAILS = {"refused": 400, "busy": 429}


class Play:
    """A thread, and what its model says or fails with.

    Attributes:
        fates: What is to come; behind it the model answers.
        read: Each history that the model has read, with what the tools had done by then.
        asked: How often a question was answered.
        works: What each call does, by its id.
    """

    def __init__(self, kind: str, fates: list[str]) -> None:
        self.kind, self.fates = kind, fates
        self.number = self.asked = 0
        self.works: dict[str, str] = {}
        self.read: list[tuple[list[BaseMessage], Counter[str]]] = []
        self.agent = Agent(AGENTS[kind])
        self.agent.model.script = [self.line] * 99
        self.agent.model.refuses = self.refuse

    def refuse(self, history: list[BaseMessage]) -> None:
        """Fail, if that is to come; otherwise be strict."""
        self.read.append((list(history), Counter(self.agent.desk.did)))
        if self.fates and self.fates[0] in FAILS:
            raise RefusedError(self.fates[0], FAILS[self.fates.pop(0)])
        check_request(history)

    def line(self, _: Any) -> Any:
        """What the model says."""
        fate = self.fates.pop(0) if self.fates else "answer"
        self.number += 2
        first, mail = self.number, ("mail", {"to": f"m{self.number}"})
        made = {
            "mail": [mail],
            "mails": [mail, ("mail", {"to": f"n{first}"})],
            "mail and wire": [mail, ("wire", {"amount": first})],
            "wire": [("wire", {"amount": first})],
            "cut": [("mail", {"to": "cut"})],
            "mail and cut": [mail, ("mail", {"to": "cut"})],
        }.get(fate)
        if made is None:
            return AIMessage("" if fate == "silent" else "done")
        for number, (name, args) in enumerate(made, first):
            self.works[f"c{number}"] = " ".join(map(str, [name, *args.values()]))
        if "cut" not in fate:
            return calls(*made, first=first)
        raw = [(name, json.dumps(args).removesuffix('"}')) for name, args in made]
        whole = [(name, f'{text}"}}') for name, text in raw[:-1]]
        return streamed(*whole, raw[-1], reason="length", first=first)

    def run(self, way: str, value: Any) -> None:
        """One run; it may end with what a model failed with."""
        try:
            WAYS[way](self.agent.graph, value, self.agent.config)
        except UnfinishedError:
            pass
        except RefusedError as error:
            if error.status_code not in FAILS.values():
                raise

    def turn(self, way: str, text: str, *, answers: bool) -> None:
        """A message of a human, or an answer to what waits."""
        waiting = self.agent.interrupts if answers else ()
        if not waiting:
            self.run(way, {"messages": [HumanMessage(text, id=text)]})
            return
        self.asked += 1
        self.run(way, Command(resume={each.id: "yes" for each in waiting}))
        for each in waiting:
            assert self.agent.desk.did[each.value.removesuffix("?")] == 1

    def check(self) -> None:
        """What must be true of all that the model has read, and of the history."""
        for history, did in self.read:
            made = [call for m in history for call in getattr(m, "tool_calls", ())]
            renamed = {c["id"]: " ".join(map(str, [c["name"], *c["args"].values()])) for c in made}
            works = {**renamed, **self.works}
            for message in history:
                if message.type == "tool":
                    self._check_statement(message.text, works[message.tool_call_id], did)
        done = self.agent.desk.did
        assert "mail cut" not in done
        most = 1 + self.asked * (self.kind in ONE_TASK)
        assert max(done.values(), default=0) <= most

    def _check_statement(self, text: str, work: str, did: Counter[str]) -> None:
        what = work.partition(" ")[2]
        is_result = text in {f"sent to {what}", f"wired {what}: yes"}
        is_none = any(each in text for each in NOT_DONE)
        is_unknown = "may or may not have run" in text or "incomplete arguments" in text
        assert is_result + is_none + is_unknown == 1, text
        assert not is_result or did[work] >= 1, f"{text} is false"
        assert not is_none or did[work] == 0, f"{text} is false"
        assert self.kind in ONE_TASK or not did[work] or is_result, f"{work} is lost: {text}"


def pytest_generate_tests(metafunc: Any) -> None:
    """Play each kind of agent in a test of its own, so that no worker is busy alone at the end."""
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", AGENTS)


@settings(max_examples=max(4, settings.default.max_examples // 20))
@given(
    fates=st.lists(st.sampled_from([*SAYS, *FAILS]), max_size=12),
    turns=st.lists(st.tuples(st.sampled_from([*WAYS]), st.booleans()), min_size=1, max_size=5),
)
def test_no_refusal_and_no_cut_message_ends_a_thread(kind, fates, turns):
    """Each later turn is answered, and each message of the human is kept."""
    play = Play(kind, list(fates))
    for number, (way, answers) in enumerate([*turns, ("invoke", True), ("invoke", True)]):
        play.turn(way, f"turn {number}", answers=answers)
    play.fates.clear()
    for text in ("calm", "and calm"):
        play.agent.say(text)
        assert play.agent.history[-1].text == "done"
    play.check()
    said = [m.text for m in play.agent.history if m.type == "human"]
    assert said[-2:] == ["calm", "and calm"]
    assert [text for text in said if not text.startswith("turn")] == said[-2:]
