"""Callback handlers that tests share."""

from typing import Any

from langchain_core.callbacks import BaseCallbackHandler


class RunNames(BaseCallbackHandler):
    """Appends the name of each run that starts."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def on_chain_start(self, *_: Any, **kwargs: Any) -> None:
        self.names.append(kwargs["name"])
