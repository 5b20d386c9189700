"""Checkpointers of other packages: an outage ends what was begun, an odd thread does not."""

from contextlib import nullcontext
from copy import deepcopy
from json import JSONDecodeError

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_patch.cli import commands
from langgraph_patch.threads import scan_threads
from support.stored_threads import scanned, stored

# --- drivers that are not installed ---------------------------------------------------------


def error_of(name, *bases):
    """An exception class of a driver."""
    module, _, own = name.rpartition(".")
    return type(own, bases or (Exception,), {"__module__": module})


MONGO = error_of("pymongo.errors.ServerSelectionTimeoutError", error_of("pymongo.errors.Error"))
MYSQL = error_of("pymysql.err.OperationalError", error_of("pymysql.err.Error"))
AWS = error_of("botocore.exceptions.EndpointConnectionError")
CANCELED = error_of("psycopg.errors.QueryCanceled", error_of("psycopg.OperationalError"))
DATA = error_of("pymysql.err.DataError", error_of("pymysql.err.Error"))
CIPHER = error_of("cryptography.exceptions.InvalidTag")


class MongoLike(InMemorySaver):
    """Its database goes away after some queries, and each one then takes its time-out.

    Attributes:
        gone: What the driver raises then.
        left: How many queries are answered before that.
        asked: How many queries were not answered.
    """

    gone, left, asked = MONGO, 10_000, 0

    def ask(self):
        """Send a query."""
        self.left -= 1
        if self.left < 0:
            self.asked += 1
            raise self.gone("No servers found yet")

    def get_tuple(self, config):
        """Send one."""
        self.ask()
        return super().get_tuple(config)

    def list(self, *args, **options):
        """Send one for each page, which has one checkpoint."""
        for saved in super().list(*args, **options):
            self.ask()
            yield saved

    def put(self, *args):
        """Send one."""
        self.ask()
        return super().put(*args)


def filled(make):
    """A checkpointer with three threads; two are damaged, and their older checkpoints are read."""
    saver = make()
    for name, way in (("t1", "abandoned"), ("t2", "healthy"), ("t3", "failed_and_on")):
        stored(way, saver=saver, thread_id=name)
    return saver


def outages(make, act):
    """Let the database go away at each moment of what `act` does; what was done, and the saver."""
    full = filled(make)
    for left in range(10_000):
        saver, done = deepcopy(full), []
        saver.left = left
        try:
            done += act(saver, done)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            yield done, error, saver
        else:
            assert left > 5
            return


# --- an outage ------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ["scan", "repair --all --apply --yes --min-age 0"])
def test_an_outage_ends_a_command_with_2(arguments, cli, monkeypatch):
    """What was done up to then is printed, and no thread is called unreadable or refused."""

    def run(saver, done):
        monkeypatch.setattr(commands, "open_database", lambda *_, **__: nullcontext(saver))
        command, *options = arguments.split()
        code, out, err = cli(command, "mongodb://host", *options)
        done += [code, out, err]
        if saver.asked:
            raise saver.gone
        return []

    printed = {"STATUS", "OUTCOME", "damaged", "repaired"}
    for (code, out, err), _, saver in outages(MongoLike, run):
        assert (code, saver.asked <= 3) == (2, True)  # some to see whether it answers others
        assert "No servers found yet" in err.splitlines()[-1]
        assert {line.split("\t")[1] for line in out.splitlines()} <= printed


@pytest.mark.parametrize(
    "gone",
    [MYSQL, AWS, OSError, TimeoutError, ConnectionResetError],
    ids=lambda each: each.__name__,
)
def test_every_driver_has_its_own_errors(gone):
    """None of them derives from an error of another driver."""
    saver = filled(MongoLike)
    saver.gone = gone
    reports = scan_threads(saver)
    next(reports)
    saver.left = 0
    with pytest.raises(gone):
        next(reports)


# --- one odd thread --------------------------------------------------------------------------

NAMED = {"thread_ids": ["t1", "t2", "t3"]}
"""The listing of a checkpointer may load every value, the odd one too."""
OF_T2 = ["damaged", "unreadable", "damaged"]


def statuses(saver):
    """The statuses of the three threads."""
    return [status for _, status in scanned(saver, **NAMED)]


class OddSaver(InMemorySaver):
    """Once it has an `error`, its code or its driver cannot read one thread."""

    error = None

    def get_tuple(self, config):
        """Fail for that thread."""
        if self.error and config["configurable"]["thread_id"] == "t2":
            raise self.error
        return super().get_tuple(config)


@pytest.mark.parametrize(
    "error",
    [
        KeyError("channel_values"),
        TypeError("NoneType is not iterable"),
        JSONDecodeError("Expecting value", "", 0),
        NotImplementedError("Unknown serialization type: x"),
        error_of("bson.errors.InvalidBSON", ValueError)("not UTF-8"),
        DATA("a value is too long"),
        CANCELED("canceling statement due to statement timeout"),
        error_of("langgraph_checkpoint_x.EventDecodingError")("no event"),
        error_of("acme_store.CipherError")("the key of this row is gone"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_odd_thread_does_not_end_a_scan(error):
    """What the code of a checkpointer does not expect, and what its driver says of its data."""
    saver = filled(OddSaver)
    saver.error = error
    assert statuses(saver) == OF_T2


class OddSerializer(JsonPlusSerializer):
    """A serializer that cannot decrypt one value."""

    error = CIPHER

    def loads_typed(self, data):
        """Fail for it."""
        found = super().loads_typed(data)
        if "odd" in str(found):
            self.decrypt()
        return found

    def decrypt(self):
        """Fail."""
        raise self.error


class Wrapping(InMemorySaver):
    """A checkpointer that raises its own error where a value cannot be loaded."""

    def get_tuple(self, config):
        """Replace any error."""
        try:
            return super().get_tuple(config)
        except Exception as error:
            raise error_of("acme.savers.UnreadableError") from error


@pytest.mark.parametrize("make", [InMemorySaver, Wrapping])
def test_a_value_that_cannot_be_loaded_is_of_its_thread(make):
    """Whatever a serializer raises, and whatever the checkpointer makes of it."""
    saver = filled(make)
    stored("new", saver=saver, thread_id="t2").say("odd")
    saver.serde = OddSerializer()
    assert statuses(saver) == OF_T2


def test_a_service_that_a_serializer_needs_may_be_lost():
    """It gives no key for the next thread either."""
    saver = filled(InMemorySaver)
    stored("new", saver=saver, thread_id="t2").say("odd")
    saver.serde = OddSerializer()
    saver.serde.error = TimeoutError
    with pytest.raises(TimeoutError):
        statuses(saver)


class Odd(HumanMessage):
    """A message of an application; what reads its type fails."""

    def __getattribute__(self, name):
        if name == "type":
            raise CIPHER
        return super().__getattribute__(name)


def test_what_a_message_raises_is_of_its_thread():
    """A class of an application may raise its own errors when it is read."""
    saver, load = filled(InMemorySaver), InMemorySaver.get_tuple

    def loaded(config):
        saved = load(saver, config)
        if config["configurable"]["thread_id"] == "t2":
            saved.checkpoint["channel_values"]["messages"].append(Odd("x"))
        return saved

    saver.get_tuple = loaded
    assert statuses(saver) == OF_T2
