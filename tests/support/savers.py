"""A checkpointer for one test: it counts."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver


class Counting(InMemorySaver):
    """Counts its queries and its checkpoints, by method."""

    def __init__(self) -> None:
        super().__init__()
        self.used: Counter[str] = Counter()

    def get_tuple(self, config: Any) -> Any:
        self.used["get_tuple"] += 1
        return super().get_tuple(config)

    def list(self, *args: Any, **options: Any) -> Iterator[Any]:
        self.used["list"] += 1
        yield from super().list(*args, **options)

    def put(self, *args: Any) -> Any:
        self.used["put"] += 1
        return super().put(*args)

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    async def alist(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        for saved in self.list(*args, **options):
            yield saved
