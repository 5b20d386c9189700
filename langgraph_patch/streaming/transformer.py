"""The final answers of a graph as a projection of its v3 stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from langgraph_patch.errors import StreamError
from langgraph_patch.streaming.adaptive import adaptive_checker
from langgraph_patch.streaming.answer_filter import AnswerFilter
from langgraph_patch.streaming.checkers import Checker
from langgraph_patch.streaming.shapes import StreamReader, final_results
from langgraph_patch.streaming.tool_results import Token

if TYPE_CHECKING:
    from langgraph.stream import ProtocolEvent, StreamChannel, StreamTransformer
else:
    try:
        from langgraph.stream import StreamChannel, StreamTransformer
    except ImportError:  # before langgraph 1.2 there is no v3 stream
        StreamTransformer, StreamChannel = object, None


class FinalAnswers(StreamTransformer):
    """Give the v3 stream of a graph the projection `answers`: the tokens of its final answers.

    Pass the class, or a `functools.partial` of it with options, as one of `transformers` to
    `StateGraph.compile`, `create_agent` or `stream_events`. `with_patching` keeps it. Then
    `run.extensions["answers"]` yields what `final_answers` yields: pairs of a message, or a chunk
    of one, and its metadata, with retractions. They include the answers of subgraphs; the handle
    of a subgraph has the same projection with its own. A tool message with which a run ends has
    less metadata: its node, and the namespace without the id of the task.

    Args:
        scope: The namespace of the graph. LangGraph passes it.
        checker: Decides whether a message calls tools. Default: `adaptive_checker`. An answer
            is then yielded when it is complete, until its model has shown in 20 turns that it
            calls tools before it writes text; from then on from its first token.
            `first_chunk_checker` and `live_checker` yield at once and retract what was no
            answer; `full_stream_checker` yields complete answers.
        internal: Whether to yield, too, what models wrote inside tools and for LangChain's
            middleware (summaries, tool selection). Default: False.

    Raises:
        StreamError: Before langgraph 1.2, which has no v3 stream. `final_answers` works there.

    Examples:
        >>> from functools import partial
        >>> import warnings
        >>> from langchain_core.language_models import GenericFakeChatModel
        >>> from langchain_core.messages import AIMessage
        >>> from langgraph.graph import START, MessagesState, StateGraph
        >>> from langgraph_patch.streaming import FinalAnswers, live_checker
        >>> model = GenericFakeChatModel(messages=iter([AIMessage("Good morning.")]))
        >>> builder = StateGraph(MessagesState)
        >>> _ = builder.add_node("agent", lambda s: {"messages": [model.invoke(s["messages"])]})
        >>> _ = builder.add_edge(START, "agent")
        >>> graph = builder.compile(transformers=[partial(FinalAnswers, checker=live_checker)])
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore")  # LangGraph calls v3 experimental
        ...     run = graph.stream_events({"messages": "hello"}, version="v3")
        ...     "".join(token.text for token, _ in run.extensions["answers"])
        'Good morning.'
    """

    required_stream_modes: ClassVar[tuple[str, ...]] = ("messages", "updates")

    def __init__(
        self,
        scope: tuple[str, ...] = (),
        *,
        checker: Checker = adaptive_checker,
        internal: bool = False,
    ) -> None:
        if StreamChannel is None:
            raise StreamError("FinalAnswers needs langgraph 1.2 or newer. Use final_answers.")
        super().__init__(scope)
        self._channel: StreamChannel[Token] = StreamChannel()
        self._reader = StreamReader()
        self._filter = AnswerFilter(checker, internal=internal)

    def init(self) -> dict[str, Any]:
        """Return the projection."""
        return {"answers": self._channel}

    def process(self, event: ProtocolEvent) -> bool:
        """Read one event, push the tokens that can be shown now, and keep the event."""
        params = event["params"]
        namespace = tuple(params["namespace"])
        if namespace[: len(self.scope)] == self.scope:
            tokens: Iterable[Token] = self._reader.read(event) or ()
            if event["method"] == "updates":
                # In v3, the mode `messages` leaves out tool messages.
                tokens = final_results(params["data"], namespace)
            for token in tokens:
                self._push(token)
        return True

    def finalize(self) -> None:
        """Push what is still held at the end of the run."""
        self._filter.is_interrupted = self._reader.is_interrupted
        for token in self._filter.finish():
            self._channel.push(token)

    def fail(self, err: BaseException) -> None:  # noqa: ARG002 - LangGraph's signature
        """Push what is still held when the run fails; LangGraph then raises the error."""
        for token in self._filter.finish(failed=True):
            self._channel.push(token)

    def _push(self, token: Token) -> None:
        for shown in self._filter.add(token):
            self._channel.push(shown)
