"""What a seed decides: the agent, its settings, and the events."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from ledger.agents import KINDS, Kind
from ledger.events import EVENTS, kill, message
from ledger.model import Habits


@dataclass(frozen=True)
class Scenario:
    """Everything that a seed decides, but for the draws of the events."""

    seed: int
    kind: Kind
    asynchronous: bool
    coroutines: bool
    sqlite: bool
    durability: str
    state: str
    retry: bool
    handle_errors: bool
    habits: Habits
    events: tuple[Any, ...]

    @classmethod
    def of(cls, seed: int, *, kills: bool = True) -> Scenario:
        """The scenario of that seed.

        Args:
            seed: Any number.
            kills: Whether processes are killed; if not, those events are messages.
        """
        draw = random.Random(f"scenario {seed}")  # noqa: S311 - no secret
        kind = list(KINDS.values())[seed % len(KINDS)]
        asynchronous = draw.random() < 0.5
        events = draw.choices(list(EVENTS), list(EVENTS.values()), k=draw.randint(2, 8))
        killed = kill in events and draw.random() < 0.5
        coroutines = asynchronous and draw.random() < 0.7
        sqlite = draw.random() < 0.35
        return cls(
            seed=seed,
            kind=kind,
            asynchronous=asynchronous and not killed,
            coroutines=coroutines and not killed,
            sqlite=sqlite or killed,
            durability=draw.choices(["sync", "async", "exit"], [4, 4, 2])[0],
            state=draw.choice(kind.states),
            retry=draw.random() < 0.2,
            handle_errors=draw.random() < 0.3,
            habits=Habits(
                seed=seed,
                ids=draw.choices(["unique", "per_message", "function", "twins"], [6, 2, 1, 1])[0],
                malformed=draw.random() < 0.2,
                same_args=draw.random() < 0.15,
                boom=draw.random() < 0.7,
            ),
            events=tuple(events if kills else [message if e is kill else e for e in events]),
        )

    @property
    def title(self) -> str:
        """The settings on a line."""
        parts = [self.kind.name, "async" if self.asynchronous else "sync"]
        parts += ["sqlite" if self.sqlite else "memory", f"durability={self.durability}"]
        parts += [f"state={self.state}", f"ids={self.habits.ids}"]
        parts += [name for name in ("retry", "handle_errors") if getattr(self, name)]
        parts += [n for n in ("malformed", "same_args") if getattr(self.habits, n)]
        return " ".join(parts)
