"""Prints, as Markdown, what agents do with a call that was cut off at the token limit.

The model answers with a complete call and a cut one, over the integrations of providers, streamed
and not. A cell has what ran, and what the thread answers to the next message.

    python tests/truncated_table.py [PROVIDER ...]
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from langchain.agents import create_agent

from kit import KINDS, Agent
from support.truncating_servers import PROVIDERS, Answer

CALLS = (("mail", '{"to": "al"}'), ("mail", '{"to": "bo'))
AGENTS: dict[str, Any] = {
    "bare": lambda model, tools, saver: create_agent(model, tools, checkpointer=saver),
    "with_patching": KINDS["create_agent"],
    "middleware": KINDS["middleware"],
}


def cell(build: Any, name: str, *, streaming: bool) -> str:
    """What ran, and the answer to the next message."""
    with PROVIDERS[name].serving([Answer(CALLS, "limit")]) as server:
        model = server.model(streaming=streaming)
        agent = Agent(lambda _, tools, saver: build(model, tools, saver))
        for text in ("go", "hello"):
            agent.say(text)
    return f"{', '.join(sorted(agent.desk.did))} / {agent.history[-1].text}"


if __name__ == "__main__":
    logging.disable()
    print(f"| provider | {' | '.join(AGENTS)} |\n|---|{'---|' * len(AGENTS)}")  # noqa: T201
    for name in sys.argv[1:] or PROVIDERS:
        for streaming in (True, False):
            cells = [cell(build, name, streaming=streaming) for build in AGENTS.values()]
            mode = "streamed" if streaming else "not streamed"
            print(f"| {name}, {mode} | {' | '.join(cells)} |")  # noqa: T201
