"""A chat as a web service: answers over SSE, approvals in any tab, and threads that do not die.

cd examples && uvicorn web_service.app:app    # MODEL="openai:..." and DATABASE_URI="postgresql://..."
"""

import asyncio
import json
import logging
import os
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from fastapi import FastAPI, HTTPException
from fastapi.responses import FileResponse, StreamingResponse
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
    answer = interrupt(f"Wire {amount}?")
    if answer != "yes":
        return f"not wired: {answer}"
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
        async with AsyncSqliteSaver.from_conn_string("threads.sqlite") as saver:
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
sse = partial(StreamingResponse, media_type="text/event-stream")


class Sent(BaseModel):
    text: str
    id: str = ""  # of the question that it answers


def config_of(thread_id: str) -> dict:
    return {"configurable": {"thread_id": thread_id}}


def event(name: str, **data: str) -> str:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"


async def events(value, thread_id: str):
    """Run the agent, and yield what a client shows. A client that leaves cancels the run."""
    agent, config = app.state.agent, config_of(thread_id)
    stream = agent.astream(value, config, stream_mode=["messages", "updates"])
    try:
        async for first, second in afinal_answers(stream, other_modes=True):
            if first == "updates":
                for question in second.get("__interrupt__", ()):
                    yield event("approval", id=question.id, text=question.value)
            else:
                yield event("answer", id=first.id, text=first.text)
    except StartedError as error:  # another tab was first
        yield event("error", text=str(error))
    except Exception:
        logging.getLogger("uvicorn.error").exception("thread %s", thread_id)
        yield event("error", text="This failed. Write again.")


@app.get("/")
async def page():
    return FileResponse(Path(__file__).with_name("page.html"))


@app.get("/threads/{thread_id}")
async def show(thread_id: str):
    """The open approvals, for a tab that is opened or loaded again."""
    state = await app.state.agent.aget_state(config_of(thread_id))
    return {"approvals": [{"id": each.id, "text": each.value} for each in state.interrupts]}


@app.post("/threads/{thread_id}/messages")
async def write(thread_id: str, sent: Sent):
    return sse(events({"messages": [("human", sent.text)]}, thread_id))


@app.post("/threads/{thread_id}/answers")
async def answer(thread_id: str, sent: Sent):
    """Answer one approval by its id: a late answer goes to no other question."""
    state = await app.state.agent.aget_state(config_of(thread_id))
    if sent.id not in {each.id for each in state.interrupts}:
        raise HTTPException(409, "This question is not open any more.")
    return sse(events(Command(resume={sent.id: sent.text}), thread_id))
