"""The log; who writes it: tools, and a model that calls them; and the graphs of these parts.

The model refuses broken histories. Each kind of agent has a function that builds its graph.
"""

import asyncio
import json
import operator
import os
import pickle
import random
import re
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NamedTuple, TypedDict

from langchain.agents import AgentState, create_agent, middleware
from langchain_core.messages import AIMessage, AnyMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableLambda, ensure_config
from langchain_core.tools import tool
from langgraph.channels import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.prebuilt import ToolNode, ToolRuntime, create_react_agent, tools_condition
from langgraph.types import Command, Send, interrupt
from langgraph_supervisor import create_supervisor
from langgraph_swarm import create_handoff_tool, create_swarm

from kit import StrictModel, loop, model_node, refuses, send_each
from langgraph_patch import patch_model
from langgraph_patch.testing import RefusedError

RECEIPT = re.compile(r"receipt-(\d+)")
REF = re.compile(r"R\d+")


class Call(NamedTuple):
    """A tool call that a model wrote. `ref` is in the arguments, and represents them."""

    message: str
    id: str
    name: str
    ref: str
    malformed: bool = False
    parent: str = ""  # the ref of the `task` call that the model works for


class ToolEvent(NamedTuple):
    """`kind`: start, asked, answered, effect, end, raised. `execution`: the number of the start."""

    kind: str
    execution: int
    call: Call
    label: str = ""


class Read(NamedTuple):
    """A model call: the messages that the model received."""

    agent: str
    run: int
    messages: tuple


class World:
    """The log of one scenario, in order. If it is `calm`, models only answer."""

    def __init__(self):
        self.entries, self.run, self.calm, self.lock = [], 0, False, threading.RLock()
        self.file, self.kill_after = None, 0  # a process is to be killed after these tool events

    def log(self, entry):
        with self.lock:
            self.entries.append(entry)
            if self.file is not None:
                self.file.write_bytes(pickle.dumps(self.entries))
                self.kill_after -= isinstance(entry, ToolEvent)
                if not self.kill_after:
                    os.kill(os.getpid(), signal.SIGKILL)

    def all(self, kind):
        return [(n, entry) for n, entry in enumerate(self.entries) if isinstance(entry, kind)]

    def find(self, message, name, ref, call_id):
        """The call of a message; repairs may rename its id, and handoffs have no ref."""
        alike = [
            call
            for _, call in self.all(Call)
            if (call.message, call.name) == (message, name) and (call.ref == ref or not ref)
        ]
        return min(alike, key=lambda call: (not call.malformed, call.id != call_id), default=None)


TOOLS = {"send_email": 4, "wire_money": 4, "slow": 2, "boom": 2, "asks_twice": 1, "note": 2}
"""How often each tool is called, relative to the others."""
QUESTIONS = {"wire_money": 1, "asks_twice": 2}
RUN = "ledger_run"
"""The key of the config with the number of the run: several runs may be at work at once."""


@tool
def _template(ref: str, runtime: ToolRuntime) -> Any:
    """Do something."""


def make_tool(world, name, *, coroutine, asks=True):
    """The tool with that name. `asks`: whether it asks by itself."""

    def work(ref, runtime):
        """One execution: yields the seconds that it wants to sleep, then its result."""
        call_id = str(runtime.tool_call_id)
        call = next(call for _, call in world.all(Call) if call.ref == ref)
        with world.lock:
            again = any(e.call == call for _, e in world.all(ToolEvent))
            event = ToolEvent("start", len(world.entries), call, call_id)
            world.log(event)
        text = f"{name} {ref} receipt-{event.execution}"
        for _ in range(QUESTIONS.get(name, 0) if asks else 0):
            world.log(event._replace(kind="asked"))
            label = str(interrupt(f"may I? {text}"))
            world.log(event._replace(kind="answered", label=label))
        fails, fails_late = name == "boom" and not again, int(ref[1:]) % 2
        yield 0.025 if name == "slow" else 0.005
        if fails_late or not fails:
            world.log(event._replace(kind="effect"))
        if fails:
            world.log(event._replace(kind="raised"))
            raise RuntimeError(f"kaput {text}")
        yield 0.025 if name == "slow" else 0.005
        world.log(event._replace(kind="end"))
        message = ToolMessage(f"done: {text}", tool_call_id=call_id, name=name)
        note = Command(update={"notes": {ref: 1}, "messages": [message]})
        yield note if name == "note" else f"done: {text}"

    def run(ref, runtime):
        for step in work(ref, runtime):
            time.sleep(step if isinstance(step, float) else 0)
        return step

    async def arun(ref, runtime):
        for step in work(ref, runtime):
            await asyncio.sleep(step if isinstance(step, float) else 0)
        return step

    body = {"func": None, "coroutine": arun} if coroutine else {"func": run}
    return _template.model_copy(update={"name": name, "description": name, **body})


class RandomModel(StrictModel):
    """Logs what it reads, refuses or answers. `tools`: those that it calls, with their weights."""

    agent: str
    world: Any
    settings: Any
    tools: dict[str, int]
    disable_streaming: bool = True  # the model of `kit` streams no malformed calls

    def bind_tools(self, tools, **_):
        return self

    async def _agenerate(self, messages, *_, **__):
        return self._generate(messages)

    def _line(self, messages):
        world = self.world
        run = ensure_config()["configurable"].get(RUN, world.run)
        with world.lock:  # of two runs at once, no two calls may have one ref
            number = sum(read.agent == self.agent for _, read in world.all(Read))
            world.log(Read(self.agent, run, tuple(messages)))
            self.check(messages)
            if all(message.type == "system" for message in messages):
                raise ValueError("there is no message")  # as LangGraph may do after a goto
            return self._reply(messages, number)

    def check(self, messages):
        """Refuse what a provider refuses."""
        refuses(messages)

    def _reply(self, messages, number):
        message_id = f"ai-{self.agent}-{number}"
        draw = random.Random(f"{self.settings.seed}/{self.agent}/{number}")  # noqa: S311
        humans = [n for n, message in enumerate(messages) if message.type == "human"]
        refs = [ref for n in humans for ref in REF.findall(messages[n].text)]
        parent = refs[0] if refs and self.agent == "sub" else ""
        rounds = sum(message.type == "ai" for message in messages[max(humans, default=0) :])
        if self.world.calm or rounds >= 3 or draw.random() > (0.3 if rounds else 0.9):
            is_silent = self.settings.name == "gate" and draw.random() < 0.5
            return AIMessage("" if is_silent else f"final answer for {parent}", id=message_id)
        calls, invalid = [], []
        tools = {n: w for n, w in self.tools.items() if n not in self.settings.never}
        for index in range(draw.choice([1, 2, 2, 3])):
            [name] = draw.choices(list(tools), list(tools.values()))
            if (once := name.partition("_")[0]) in self.settings.once:
                tools = {n: w for n, w in tools.items() if not n.startswith(once)}
            made = len(self.world.all(Call))
            ref, ids = f"R{made}", {"per_message": f"call_{index}", "twins": "call_0"}
            call_id = ids.get(self.settings.ids, f"call-{made}")
            cut = self.settings.malformed and draw.random() < 0.2
            self.world.log(Call(message_id, call_id, name, ref, cut, parent))
            args = {
                "write_file": {"file_path": f"/{ref}.txt", "content": ref},
                "task": {"description": ref, "subagent_type": "helper"},
            }.get(name, {} if name.startswith("transfer") else {"ref": ref})
            call = {"name": name, "args": args, "id": call_id, "type": "tool_call"}
            if cut:
                cut_off = {
                    "args": json.dumps(args)[:-2],
                    "error": "cut",
                    "type": "invalid_tool_call",
                }
                invalid.append({**call, **cut_off})
            else:
                calls.append(call)
        return AIMessage("", id=message_id, tool_calls=calls, invalid_tool_calls=invalid)


class SilentModel(RandomModel):
    """Accepts messages of a model that say nothing."""

    def check(self, messages):
        try:
            refuses(messages)
        except RefusedError as error:
            if "either content or" not in str(error):
                raise


class JudgeModel(RandomModel):
    """Finds each call safe, and refuses messages that say nothing, and calls without results."""

    def _reply(self, messages, number):
        return AIMessage("safe", id=f"judge-{number}")


# --- the graphs ---------------------------------------------------------------------------------

Notes = Annotated[dict[str, int], operator.or_]
FEW = {"send_email": 3, "wire_money": 2, "slow": 1}


class Plain(AgentState[Any]):
    """The history, and a key that a tool writes."""

    notes: Notes


class Delta(TypedDict):
    """The same with a `DeltaChannel`."""

    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]
    notes: Notes


def _sends_or_name(state):
    """A router that makes a `Send` for each call, or names the tools beside a `Send` of its own."""
    made = state["messages"][-1].tool_calls
    return send_each(state) if len(made) != 2 else ["tools", Send("beside", {"notes": {}})]


ROUTERS = {"name": tools_condition, "sends": send_each, "both": _sends_or_name}


def _loop(session, router=None, **options):
    """An agent as LangGraph's tutorial builds it."""
    state, node = Delta if session.settings.delta else Plain, ToolNode(session.tools(TOOLS))
    router = router or ROUTERS[session.settings.router]
    builder = loop(session.model("main", TOOLS), node, state=state, router=router)
    return builder.add_node("beside", lambda _: {}).compile(**options)


def _tool_node(session, router=None):
    return session.patch(_loop(session, router, checkpointer=session.saver))


def _react_agent(session, agent, weights, *handoffs, **options):
    node = ToolNode([*session.tools([n for n in weights if n in TOOLS]), *handoffs])
    return create_react_agent(session.model(agent, weights), node, **options)


def _react(session, version):
    options, own = {"checkpointer": session.saver}, {**FEW, "boom": 2, "asks_twice": 1}
    return session.patch(_react_agent(session, "main", own, version=version, **options))


ASK = middleware.HumanInTheLoopMiddleware(interrupt_on={"wire_money": True, "asks_twice": True})


def _create_agent(session):
    approval = session.settings.approval
    graph = create_agent(
        session.model("main", TOOLS),
        session.tools(TOOLS, asks=not approval),
        middleware=[*[ASK] * approval, *session.middleware()],
        state_schema=Plain,
        checkpointer=session.saver,
    )
    return session.patch(graph)


def _deep_agent(session):
    """The library's middleware is in the subagent always: `with_patching` does not reach it."""
    from deepagents import create_deep_agent  # noqa: PLC0415 - plain `pytest` goes without it

    helper = {"name": "helper", "description": "helps", "system_prompt": "help"}
    parts = {"model": session.model("sub", FEW), "tools": session.tools(FEW)}
    graph = create_deep_agent(
        session.model("main", {**FEW, "write_file": 3, "task": 4}),
        session.tools(FEW),
        subagents=[{**helper, **parts, "middleware": session.middleware(always=True)}],
        middleware=session.middleware(),
        checkpointer=session.saver,
    )
    return session.patch(graph)


def _swarm(session):
    def member(name, other):
        own = {**FEW, "boom": 1, f"transfer_to_{other}": 3}
        return _react_agent(session, name, own, create_handoff_tool(agent_name=other), name=name)

    members = [member("alice", "bob"), member("bob", "alice")]
    builder = create_swarm(members, default_active_agent="alice")
    return session.patch(builder.compile(checkpointer=session.saver))


def _supervisor(session):
    """It calls its workers in functions of its own: each is patched."""
    workers = [session.patch(_react_agent(session, n, FEW, name=n)) for n in ("alice", "bob")]
    own = {"send_email": 2, "wire_money": 2, "transfer_to_alice": 3, "transfer_to_bob": 2}
    tools = session.tools(("send_email", "wire_money"))
    builder = create_supervisor(workers, model=session.model("main", own), tools=tools)
    return session.patch(builder.compile(checkpointer=session.saver))


def _nested(session, *, lasting=False):
    """An agent that is a node of another graph; or is called in one, with `checkpointer=True`."""
    last = RunnableLambda(lambda state: {**state, "messages": state["messages"][-1:]})
    builder = StateGraph(Delta if session.settings.delta else Plain)
    if lasting:
        child = last | session.patch(_loop(session, send_each, checkpointer=True)) | last
    else:
        child = _loop(session)
    builder.add_node("child", child)
    builder.add_edge(START, "child")
    graph = builder.compile(checkpointer=session.saver)
    return graph if lasting else session.patch(graph)


def _gate(session):
    """A judge is asked between the model and its tools."""
    judge = patch_model(session.model("judge", {}, kind=JudgeModel))  # it may be strict
    model = session.model("main", TOOLS, kind=SilentModel)

    def gate(state):
        judge.invoke([SystemMessage("Are these calls safe?"), *state["messages"]])
        return {}

    builder = StateGraph(Delta if session.settings.delta else Plain)
    builder.add_node("agent", model_node(model)).add_node("gate", gate)
    builder.add_node("tools", ToolNode(session.tools(TOOLS))).add_edge("tools", "agent")
    router = lambda state: "gate" if tools_condition(state) == "tools" else "__end__"
    builder.add_edge(START, "agent").add_conditional_edges("agent", router, ["gate", "__end__"])
    builder.add_conditional_edges("gate", tools_condition, ["tools", "__end__"])
    return session.patch(builder.compile(checkpointer=session.saver))


class Kind(NamedTuple):
    """A kind of agent. `may`: the settings that it knows."""

    build: Callable
    may: str = ""
    entry: str = "agent"  # the node that Command(goto=...) names
    own_tasks: bool = True  # whether each call has a task, so that its result is recorded alone


SETTINGS = ("record", "delta", "approval", "middleware")
KINDS = {
    "tool_node": Kind(_tool_node, "record delta router", own_tasks=False),
    "send": Kind(partial(_tool_node, router=send_each), "delta"),
    "react_v1": Kind(partial(_react, version="v1"), "record", own_tasks=False),
    "react_v2": Kind(partial(_react, version="v2")),
    "create_agent": Kind(_create_agent, "approval middleware", "model"),
    "deep_agent": Kind(_deep_agent, "middleware", "model"),
    "swarm": Kind(_swarm, entry="alice"),
    "supervisor": Kind(_supervisor, entry="supervisor"),
    "nested": Kind(_nested, "record delta router", "child", own_tasks=False),
    "nested_lasting": Kind(partial(_nested, lasting=True), entry="child"),
    "gate": Kind(_gate, "record delta", own_tasks=False),
}
