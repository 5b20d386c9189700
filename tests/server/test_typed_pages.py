"""What a page shows of this package is right for a type checker, as it is printed."""

import re
import subprocess
import sys

import langgraph_patch
from support.paths import ENVIRONMENT, PAGES, ROOT

_BLOCK = re.compile(r'^```python(?: title="([\w.]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)


def test_the_code_of_each_page_has_types(tmp_path):
    """No error names anything of this package: what mypy says of LangGraph's own is LangGraph's."""
    for name, page in {**PAGES, "README": ROOT / "README.md"}.items():
        for title, text in _BLOCK.findall(page.read_text("utf-8")):
            with (tmp_path / f"{re.sub(r'[^a-z]', '_', f'{name}_{title}')}.py").open("a") as file:
                file.write(text)
    options = [
        "--allow-redefinition",
        "--ignore-missing-imports",
        "--cache-dir",
        ROOT / ".mypy_cache",
    ]
    command = [sys.executable, "-m", "mypy", "--config-file=", *options, *tmp_path.glob("*.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)  # noqa: S603 - our own pages
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert errors or "Success" in done.stdout, done.stderr
    names = {*langgraph_patch.__all__, "placeholder", "reconcile", "on_patch", "messages_key"}
    assert [line for line in errors if names.intersection(re.findall(r"\w+", line))] == []
