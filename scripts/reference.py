"""Write the pages of the reference from the signatures and docstrings of the public names.

They are plain Markdown, which reads the same on GitHub and on the site. A docstring has everything,
for a reader in an editor. A page says once what several docstrings say: an option that they share,
and what an asynchronous twin has in common with its sibling. Examples are in the docstrings, and on
the pages that a name leads to. A test compares the pages with the code: `python
scripts/reference.py` writes them anew.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "pages" / "reference"

GRAPHS = """\
# Graphs and messages

Import these names from `langgraph_patch`.
"""
THREADS = """\
# Stored threads

Import these names from `langgraph_patch`. [An incident](../how-to/incident.md) does the same on \
the command line.
"""
STREAMING = """\
# Streaming

Import these names from `langgraph_patch`. [Streams](../how-to/streams.md) shows how they are used.
"""
OPTIONS = """\
## Shared options

What these mean in each function and class that has them.
"""
SHARED = ("placeholder", "recover", "reconcile", "on_patch")
"""Options that several have; the docstring of `PatchNode` describes them."""

SHOWN = {
    "with_patching": ("Agents", "how-to/wrap-an-agent"),
    "PatchNode": ("Nodes of your own", "how-to/add-a-node"),
    "PatchToolCallsMiddleware": ("Agents", "how-to/wrap-an-agent"),
    "patch_model": ("Nodes of your own", "how-to/add-a-node"),
    "patch_messages": ("Nodes of your own", "how-to/add-a-node"),
    "scan_threads": ("Databases and servers", "how-to/databases"),
    "repair_thread": ("An incident", "how-to/incident"),
    "open_database": ("An incident", "how-to/incident"),
    "final_answers": ("Streams", "how-to/streams"),
    "split_stream": ("Streams", "how-to/streams"),
    "message_from_stream": ("Streams", "how-to/streams"),
    "Turn": ("Streams", "how-to/streams"),
    "StrictModel": ("Test your own graph", "how-to/test-your-graph"),
    "calls": ("Test your own graph", "how-to/test-your-graph"),
    "pause": ("Test your own graph", "how-to/test-your-graph"),
}
"""A name -> the page whose code shows it."""

TYPES = """\
## Types

The types of the options above, and what they hold.
"""
ERRORS = """\
## Errors

Every error of this package is a `PatchError`. Import them from `langgraph_patch`. An invalid \
option is an `OptionError`, a graph in place of a checkpointer a `GraphError`.
"""

TESTING = """\
# Testing

Import these names from `langgraph_patch.testing`. \
[Test your own graph](../how-to/test-your-graph.md) shows how they are used.
"""

PAGES: dict[str, tuple[str, ...]] = {
    "graphs": (
        GRAPHS,
        "with_patching",
        "PatchNode",
        "repairing.entry.patch_node",
        "PatchToolCallsMiddleware",
        "patch_model",
        "idempotency_key",
        "patch_messages",
        "validate_messages",
        "portable_messages",
        "Patch",
        "Change",
        "is_placeholder",
        "history.fields.PLACEHOLDER_KEY",
        "set_language",
        OPTIONS,
        TYPES,
        "history.placeholders.Placeholder",
        "DanglingCall",
        "repairing.reconcile.Lookup",
        "repairing.repairer.OnPatch",
        "repairing.repairer.Recover",
        "repairing.repairer.EVENT",
        "history.findings.Evidence",
        "Finding",
        ERRORS,
        "errors",
    ),
    "threads": (
        THREADS,
        "scan_threads",
        "repair_thread",
        "undo_repair",
        "open_database",
        "ThreadReport",
        "ThreadRepair",
    ),
    "streaming": (
        STREAMING,
        "final_answers",
        "afinal_answers",
        "streaming.answers.RETRACTED_KEY",
        "split_stream",
        "asplit_stream",
        "message_from_stream",
        "merge_tool_call_chunks",
        "streaming.message.UNFINISHED_KEY",
        "first_chunk_checker",
        "full_stream_checker",
        "streaming.checkers.Checker",
        "Turn",
    ),
    "testing": (
        TESTING,
        "testing.StrictModel",
        "testing.calls",
        "testing.pause",
        "testing.fail",
        "testing.kill",
        "testing.cut",
        "testing.refuse",
        "testing.check_request",
        "testing.RefusedError",
    ),
}
"""For each page its texts and names, in order; a constant with the module that has its text."""

_PAGE = re.compile(
    r"https://github\.com/langgraph-patch/langgraph-patch/blob/main/docs/pages/(\S+\.md)"
)

_GENERAL = re.compile(r"OptionError If an option has an invalid|GraphError If a graph was passed")
"""What the section about errors says of all functions."""

_SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Examples):\n", re.MULTILINE)
_ITEM = re.compile(r"^    (\S[^:\n]*): (.*?)(?=^    \S|\Z)", re.DOTALL | re.MULTILINE)


def page(name: str) -> str:
    """The text of a page of the reference."""
    parts = (part if part[0] == "#" else entry(part) for part in PAGES[name])
    parts = (f"{part}\n{shared()}" if part == OPTIONS else part for part in parts)
    return _PAGE.sub(linked, "\n".join(part.rstrip("\n") + "\n" for part in parts))


def linked(found: re.Match[str]) -> str:
    """A link to a page by its title."""
    title = (
        (FOLDER.parent / found[1])
        .read_text("utf-8")
        .partition("\n")[0]
        .lstrip("# ")
        .partition(":")[0]
    )
    return f"[{title}](../{found[1]})"


def shared() -> str:
    """The options that several have."""
    node = importlib.import_module("langgraph_patch").PatchNode
    return "\n".join(options(node, [*shared_options().items()], fold=False))


def shared_options() -> dict[str, str]:
    """What these options mean, by the docstring of `PatchNode`."""
    node = importlib.import_module("langgraph_patch").PatchNode
    documented = dict(_ITEM.findall(sections_of(node)[1]["Args"]))
    return {name: documented[name] for name in SHARED}


def sections_of(value: Any) -> tuple[str, dict[str, str]]:
    """The text of a docstring, and its sections by their titles."""
    first, *others = _SECTION.split(inspect.getdoc(value) or "")
    return first, dict(zip(others[::2], others[1::2], strict=True))


def entry(path: str) -> str:
    """The section of one name."""
    module_path, _, name = path.rpartition(".")
    module = importlib.import_module(".".join(filter(None, ["langgraph_patch", module_path])))
    value = getattr(module, name)
    if isinstance(value, ModuleType):
        return "\n".join(errors(value))
    if not inspect.isfunction(value) and not inspect.isclass(value):
        return "\n".join(constant(module, name))
    return "\n".join(definition(value))


def definition(value: Any) -> Iterator[str]:
    """A function or a class: how it is called, what it does, every option, an example."""
    first, sections = sections_of(value)
    is_result = isinstance(value, type) and "Args" not in sections
    yield f"## {value.__name__}\n"
    if not is_result:
        yield f"```py\n{called(value)}\n```\n"
    yield prose(first)
    if first.startswith("Same as "):
        return
    yield from options(value, _ITEM.findall(sections.get("Args", "")))
    yield from attributes(value, _ITEM.findall(sections.get("Attributes", "")))
    for title in sections.keys() & {"Returns", "Yields"}:
        yield f"**{title}** {prose(sections[title])}"
    raised = _ITEM.findall(sections.get("Raises", ""))
    if raised := [each for each in raised if not _GENERAL.match(" ".join(each))]:
        yield "**Raises**\n"
        yield "\n".join(f"- `{name}`: {' '.join(why.split())}" for name, why in raised) + "\n"
    if value.__name__ in SHOWN:
        title, address = SHOWN[value.__name__]
        yield f"**Example**: [{title}](../{address}.md)\n"
    if is_result:
        yield from methods(value)


def options(value: Any, documented: list[tuple[str, str]], *, fold: bool = True) -> Iterator[str]:
    """The options of a function, or of those that a class is made with."""
    parameters = {name_of(each): each for each in parameters_of(value)}
    common = []
    for name, meaning in documented:
        parameter = parameters[name]
        is_required = name[0] == "*" or parameter.default is parameter.empty
        given = name if is_required else f"{name}={shown(parameter.default)}"
        kind = type_text(parameter.annotation)
        kind = kind.removesuffix(" or `None`") if parameter.default is None else kind
        if fold and item(meaning) == item(shared_options().get(name, "")):
            common.append(f"`{given}`")
        else:
            yield f"- `{given}` ({kind}): {item(meaning)}"
    if common:
        yield f"- {', '.join(common)}: [shared options](graphs.md#shared-options)."
    if documented:
        yield ""


def parameters_of(value: Any) -> list[inspect.Parameter]:
    """The parameters of a function, or of those that a class is made with."""
    if not inspect.isclass(value):
        return [*inspect.signature(value).parameters.values()]
    return [*inspect.signature(value.__init__).parameters.values()][1:]


def name_of(parameter: inspect.Parameter) -> str:
    """The name of a parameter, with the stars of one that takes any number of values."""
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    return stars.get(parameter.kind, "") + parameter.name


def attributes(value: Any, documented: list[tuple[str, str]]) -> Iterator[str]:
    """The attributes of a class."""
    bases = reversed(value.__mro__) if documented else ()
    annotations = {k: v for each in bases for k, v in inspect.get_annotations(each).items()}
    for name, meaning in documented:
        yield f"- `{name}` ({type_text(annotations[name])}): {item(meaning)}"
    if documented:
        yield ""


def methods(value: type) -> Iterator[str]:
    """The public methods and properties of a result, each with its first paragraph."""
    bases = [each for each in reversed(value.__mro__) if each.__module__ == value.__module__]
    for name, method in {k: v for each in bases for k, v in vars(each).items()}.items():
        function = method.fget if isinstance(method, property) else method
        if inspect.isfunction(function) and name[0] != "_":
            brackets = "" if isinstance(method, property) else "()"
            text = (inspect.getdoc(function) or "").partition("\n\n")[0]
            yield f"**`{name}{brackets}`** {prose(text)}"


def constant(module: ModuleType, name: str) -> Iterator[str]:
    """A constant, a type or `patch_node`: its value, and the text below it in the module."""
    body = ast.parse(inspect.getsource(module)).body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        target = getattr(statement, "target", None)
        if isinstance(target, ast.Name) and target.id == name:
            value = ast.unparse(statement.value)  # type: ignore[attr-defined]
            yield f"## {name}\n\n```py\n{name} = {value.strip(chr(34))}\n```\n"
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                yield prose(inspect.cleandoc(str(following.value.value)))
            return
    raise LookupError(name)


def errors(module: ModuleType) -> Iterator[str]:
    """The tree of the exceptions, and what is said of each."""
    text = inspect.getdoc(module) or ""
    tree = re.search(r"^    .*?(?=\n\n)", text, re.DOTALL | re.MULTILINE)
    if tree is None:
        raise LookupError("no tree of exceptions")
    yield f"```text\n{inspect.cleandoc(tree[0])}\n```\n"
    yield prose(text[tree.end() :].strip())


def called(value: Any) -> str:
    """How a function or a class is called: what is given by position; the options follow below."""
    prefix = "async " if inspect.iscoroutinefunction(value) else ""
    own = parameters_of(value)
    given = [name_of(each) for each in own if each.kind is not each.KEYWORD_ONLY]
    if len(given) < len(own):
        given += (
            ["*", "..."] if not any(each.kind is each.VAR_POSITIONAL for each in own) else ["..."]
        )
    return f"{prefix}{value.__name__}({', '.join(given)})"


def type_text(annotation: Any) -> str:
    """A type, its alternatives joined by `or`: a pipe would end the cell of a table."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    parts, depth, current = [], 0, ""
    for each in text.replace("collections.abc.", "").replace("typing.", ""):
        depth += (each in "[(") - (each in ")]")
        if each == "|" and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += each
    parts.append(current.strip())
    return " or ".join(f"`{part.replace(' | ', ' or ')}`" for part in parts if part)


def shown(value: Any) -> str:
    """A default value as it is written in a call."""
    return str(value.__name__) if callable(value) else repr(value).replace("'", '"')


def item(text: str) -> str:
    """The text of an item of a list, without `Default: ...`, which stands before it."""
    first, *inner = re.split(r"^\s*- ", text, flags=re.MULTILINE)
    text = "\n".join(
        [" ".join(first.split()), *(f"    - {' '.join(each.split())}" for each in inner)]
    )
    return re.sub(r" Default: (?:None|True|False|\"[^\"]*\"|`[^`]*`|\d+)\.$", "", text)


def prose(text: str) -> str:
    """Paragraphs, each on one line; lists and tables stay."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    joined = (
        part if re.match(r"[-|]| {4}", part) else " ".join(part.split()) for part in paragraphs
    )
    return "\n\n".join(joined) + "\n"


if __name__ == "__main__":
    for each in PAGES:
        (FOLDER / f"{each}.md").write_text(page(each), "utf-8")
