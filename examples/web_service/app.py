"""A chat as a web service: `cd examples && uvicorn web_service.app:app`."""

import asyncio
import json
import logging
import os
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, HTTPException
from fastapi.responses import FileResponse
from fastapi.sse import EventSourceResponse
from langchain.agents import create_agent
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from langgraph_patch import with_patching
from langgraph_patch.errors import StartedError
from langgraph_patch.streaming import afinal_answers
from scripted import Script, send_email


async def wire_money(amount: int) -> str:
    """Wire money, if a human agrees."""
    if interrupt(f"Wire {amount}?") != "yes":
        return "not wired: the human said no"
    await asyncio.sleep(float(os.environ.get("BANK_SECONDS", "1")))  # the bank takes its time
    print(f"wired {amount}", flush=True)
    return f"wired {amount}"


@asynccontextmanager
async def open_saver():
    if uri := os.environ.get("DATABASE_URI"):
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
        from psycopg.rows import dict_row
        from psycopg_pool import AsyncConnectionPool

        options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        async with AsyncConnectionPool(uri, open=False, kwargs=options) as pool:
            yield AsyncPostgresSaver(pool)
    else:
        async with AsyncSqliteSaver.from_conn_string("chat.sqlite") as saver:
            yield saver


@asynccontextmanager
async def lifespan(app: FastAPI):
    async with open_saver() as saver:
        await saver.setup()
        model = os.environ.get("MODEL") or Script("send_email", "wire_money")
        agent = create_agent(model, [send_email, wire_money], checkpointer=saver)
        app.state.agent = with_patching(agent, once=["wire_money"])
        yield


app = FastAPI(lifespan=lifespan)


class Sent(BaseModel):
    text: str
    id: str = ""  # of the question that it answers


def config_of(thread_id: str) -> dict:
    return {"configurable": {"thread_id": thread_id}}


async def run(value, thread_id: str, shown: asyncio.Queue):
    """Run the agent, and queue what a client shows."""
    agent, config = app.state.agent, config_of(thread_id)
    stream = agent.astream(value, config, stream_mode=["messages", "updates"])
    try:
        async for first, second in afinal_answers(stream, other_modes=True):
            if first == "updates":
                for question in second.get("__interrupt__", ()):
                    shown.put_nowait(("approval", {"id": question.id, "text": question.value}))
            else:
                shown.put_nowait(("answer", {"id": first.id, "text": first.text}))
    except StartedError:  # another tab was first
        shown.put_nowait(("error", {"text": "Answered before. Write, and read how it ended."}))
    except Exception:  # the client gets an answer, whatever has failed
        logging.getLogger("uvicorn.error").exception("thread %s", thread_id)
        shown.put_nowait(("error", {"text": "This failed. Write again."}))
    shown.put_nowait(None)


async def events(value, thread_id: str):
    shown = asyncio.Queue()
    task = asyncio.create_task(run(value, thread_id, shown))
    try:
        while (event := await shown.get()) is not None:
            yield f"event: {event[0]}\ndata: {json.dumps(event[1])}\n\n"
    finally:  # the client has left: the run is cancelled once, and LangGraph stops its tools
        task.cancel()


@app.get("/")
async def page():
    return FileResponse(Path(__file__).with_name("page.html"))


@app.get("/threads/{thread_id}")
async def show(thread_id: str):  # for a tab that is opened or loaded again
    state = await app.state.agent.aget_state(config_of(thread_id))
    said = [m for m in state.values.get("messages", ()) if m.type != "tool" and m.text]
    return {
        "messages": [{"id": each.id, "type": each.type, "text": each.text} for each in said],
        "approvals": [{"id": each.id, "text": each.value} for each in state.interrupts],
    }


@app.post("/threads/{thread_id}")
async def write(thread_id: str, sent: Sent):
    """A message, or the answer to one approval: by its id, so that it reaches no other one."""
    value = {"messages": [("human", sent.text)]}
    if sent.id:
        state = await app.state.agent.aget_state(config_of(thread_id))
        if sent.id not in {each.id for each in state.interrupts}:
            raise HTTPException(409, "This question is not open any more.")
        value = Command(resume={sent.id: sent.text})
    return EventSourceResponse(events(value, thread_id))
