"""Remove passwords from text that is shown or logged."""

from __future__ import annotations

import re

_SECRETS = (
    re.compile(r"(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|\S+)", re.IGNORECASE),
    re.compile(r"([a-z][a-z0-9+.-]*://).*@[^\s'\"]*", re.IGNORECASE | re.DOTALL),
    re.compile(r"(postgres[a-z0-9+.-]*://)[^\s'\"]+", re.IGNORECASE),
)


def masked(text: str) -> str:
    """`text` without the passwords of URIs and of libpq's `password=...`.

    Examples:
        >>> from langgraph_patch.cli.masking import masked
        >>> masked("not postgresql://bob:s3cr3t@db/x and not host=db password='s 3' user=bob")
        'not postgresql://*** and not host=db password=*** user=bob'
    """
    for secret in _SECRETS:
        text = secret.sub(r"\1***", text)
    return text
