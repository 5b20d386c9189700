"""Records after `update_state`: a pause goes on with them, and a fork runs its calls again."""

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from support.recorded_agents import GO, THREAD, State, World, ask, plain_loop, recorded, results

PAIR = ask(("mail", "bob", "c1"), ("wire", "eve", "c2"))
DONE = {"c1": "sent to bob", "c2": "wired to eve: yes"}
ONCE = {"mail bob": 1, "wire eve": 1}


@pytest.mark.parametrize("updates", [1, 3])
@pytest.mark.parametrize("as_node", [None, "agent"])
def test_an_update_between_pause_and_resume_sends_no_second_mail(runs, world, updates, as_node):
    """The node has another task id on the new checkpoint; the record is found by its owner."""

    def scenario(saver):
        app = plain_loop(world, saver, PAIR)
        yield app, "invoke", GO, THREAD
        for _ in range(updates):
            yield app, "update_state", THREAD, {"flag": True}, as_node
        done = yield app, "invoke", Command(resume="yes"), THREAD
        return done

    assert results(runs(scenario)) == DONE
    assert world.did == ONCE


def test_two_pauses_with_an_update_after_each(runs, world):
    """A record that was found again belongs to the new task too."""
    message = ask(("mail", "bob", "c1"), ("wire", "eve", "c2"))

    def scenario(saver):
        app = plain_loop(world, saver, message)
        yield app, "invoke", GO, THREAD
        for _ in range(2):
            yield app, "update_state", THREAD, {"flag": True}
            yield app, "invoke", None, THREAD
        yield app, "update_state", THREAD, {"flag": False}
        return (yield app, "invoke", Command(resume="yes"), THREAD)

    assert results(runs(scenario)) == DONE
    assert world.did == ONCE


def test_an_update_in_the_resume_command(runs, world):
    """`Command(resume=..., update=...)` stays on the checkpoint."""

    def scenario(saver):
        app = plain_loop(world, saver, PAIR)
        yield app, "invoke", GO, THREAD
        return (yield app, "invoke", Command(resume="yes", update={"flag": True}), THREAD)

    assert results(runs(scenario)) == DONE
    assert world.did == ONCE


def test_an_update_of_the_call_runs_the_new_call(runs, world):
    """Other arguments are another request; the sibling is not run again."""
    edited = ask(("mail", "mia", "c1"), ("wire", "eve", "c2"))

    def scenario(saver):
        app = plain_loop(world, saver, PAIR)
        yield app, "invoke", GO, THREAD
        yield app, "update_state", THREAD, {"messages": [edited]}, "agent"
        return (yield app, "invoke", Command(resume="yes"), THREAD)

    assert results(runs(scenario)) == {**DONE, "c1": "sent to mia"}
    assert world.did == {**ONCE, "mail mia": 1}


def test_another_message_with_the_same_call_runs(runs, world):
    """An id that a server uses again: the record belongs to the other message."""
    other = ask(("mail", "bob", "c1"), ("wire", "eve", "c2"), message_id="ai2")

    def scenario(saver):
        app = plain_loop(world, saver, PAIR)
        yield app, "invoke", GO, THREAD
        yield app, "update_state", THREAD, {"messages": [other]}, "agent"
        yield app, "invoke", Command(resume="yes"), THREAD

    runs(scenario)
    assert world.did == {"mail bob": 2, "wire eve": 1}


@pytest.mark.parametrize("ending", ["finished", "abandoned", "updated"])
def test_a_fork_runs_its_calls_again(runs, world, ending):
    """`update_state` on an older checkpoint is a fork, whatever came after that checkpoint."""

    def scenario(saver):
        app = plain_loop(world, saver, PAIR)
        yield app, "invoke", GO, THREAD
        paused = (yield app, "get_state", THREAD).config
        if ending == "finished":
            yield app, "invoke", Command(resume="yes"), THREAD
        elif ending == "abandoned":
            yield app, "invoke", {"messages": [("user", "never mind")]}, THREAD
        else:
            yield app, "update_state", THREAD, {"flag": True}
            yield app, "invoke", Command(resume="yes"), THREAD
        before = world.did["mail bob"]
        fork = yield app, "update_state", paused, {"flag": True}
        yield app, "invoke", Command(resume="again"), fork
        return world.did["mail bob"] - before

    assert runs(scenario) == 1


def test_a_replay_of_an_older_checkpoint_runs_again(runs, world):
    """Time travel to a checkpoint before the tools."""

    def scenario(saver):
        app = plain_loop(world, saver, ask(("mail", "bob", "c1")))
        yield app, "invoke", GO, THREAD
        checkpoints = yield saver, "list", THREAD
        with_call = next(c for c in checkpoints if c.metadata["step"] == 1)
        forked = yield app, "update_state", with_call.config, {"flag": True}
        yield app, "invoke", None, forked

    runs(scenario)
    assert world.did == {"mail bob": 2}


def test_a_crash_then_an_update(runs, world):
    """A raised sibling instead of a pause."""
    world.fails = 1
    message = ask(("mail", "bob", "c1"), ("boom", "mia", "c3"))

    def scenario(saver):
        app = plain_loop(world, saver, message)
        yield app, "invoke", GO, THREAD
        yield app, "update_state", THREAD, {"flag": True}
        return (yield app, "invoke", None, THREAD)

    assert results(runs(scenario)) == {"c1": "sent to bob", "c3": "at last mia"}
    assert world.did == {"mail bob": 1, "boom mia": 1}


def test_an_update_that_drops_a_new_input(runs, world):
    """The run of an input died at once. An update then goes on with the calls before it."""

    def scenario(saver):
        app = plain_loop(world, saver, PAIR)
        yield app, "invoke", GO, THREAD
        yield app, "update_state", THREAD, {"messages": [("user", "never mind")]}, "__input__"
        yield app, "update_state", THREAD, {"flag": True}, "agent"
        yield app, "invoke", None, THREAD
        return (yield app, "invoke", Command(resume="yes"), THREAD)

    assert results(runs(scenario)) == DONE
    assert world.did == ONCE


def test_an_update_inside_a_subgraph(runs, world):
    """The namespace of the subgraph has its own checkpoints."""

    def scenario(saver):
        inner = plain_loop(world, None, PAIR)
        builder = StateGraph(State).add_node("inner", inner).add_edge(START, "inner")
        app = builder.compile(checkpointer=saver)
        yield app, "invoke", GO, THREAD
        paused = yield app, "get_state", THREAD
        (task,) = paused.tasks
        yield app, "update_state", task.state, {"flag": True}
        return (yield app, "invoke", Command(resume="yes"), THREAD)

    assert results(runs(scenario)) == DONE
    assert world.did == ONCE


def test_a_saver_without_list_runs_the_call_again(runs_mode):
    """Nothing says whether the update made a fork: as without recording."""

    class Unlisted(InMemorySaver):
        def list(self, *_args, **_options):
            raise NotImplementedError

    world = World()
    app = plain_loop(world, Unlisted(), PAIR)
    app.invoke(GO, THREAD)
    app.update_state(THREAD, {"flag": True})
    assert results(app.invoke(Command(resume="yes"), THREAD)) == DONE
    assert world.did == {"mail bob": 2, "wire eve": 1}


def test_a_resume_without_an_update_lists_nothing():
    """The search for earlier supersteps costs nothing where there is none."""

    class Strict(InMemorySaver):
        def list(self, *_args, **_options):
            pytest.fail("listed")

    world = World()
    app = plain_loop(world, Strict(), PAIR)
    app.invoke(GO, THREAD)
    app.invoke(Command(resume="yes"), THREAD)
    assert world.did == ONCE


def test_a_later_turn_with_the_same_id_and_arguments_runs(runs, world):
    """An id that a server uses again, in a later turn of the thread."""
    messages = iter([PAIR, ask(("mail", "bob", "c1"), ("wire", "eve", "c2"), message_id="ai2")])

    def scenario(saver):
        builder = StateGraph(MessagesState)
        builder.add_node("agent", lambda _: {"messages": [next(messages)]})
        builder.add_node("tools", recorded(world.tools()))
        builder.add_edge(START, "agent")
        builder.add_edge("agent", "tools")
        app = builder.compile(checkpointer=saver)
        for _ in range(2):
            yield app, "invoke", GO, THREAD
            yield app, "invoke", Command(resume="yes"), THREAD

    runs(scenario)
    assert world.did == {"mail bob": 2, "wire eve": 2}
