"""The transport over Flower: one exchange is one `send_and_receive` of its Message API.

Only this module and `fedsaddle.deployment.flower.app` import Flower; tested with version 1.41.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedsaddle.deployment.messages import Fault, FaultKind
from fedsaddle.deployment.transport import Arrival

RECORD, KEY = "fedsaddle", "message"
TYPE = "query.fedsaddle"
WHO = "query.fedsaddle_who"


def to_record(content: bytes) -> RecordDict:
    """Wrap bytes in a record of Flower."""
    return RecordDict({RECORD: ConfigRecord({KEY: content})})


def content_of(message: Message) -> bytes:
    """The bytes of a message."""
    content = message.content[RECORD][KEY]
    if not isinstance(content, bytes):
        raise TypeError("the message holds no bytes")
    return content


class FlowerTransport:
    """Sends through Flower's grid; `nodes[i]` is the node of client i."""

    def __init__(self, grid: Any, nodes: Sequence[int]) -> None:
        self.grid, self.nodes = grid, list(nodes)

    def exchange(self, clients: Sequence[int], content: bytes, least: int, timeout: float) -> list[Arrival]:
        """Send to all clients and wait for all answers or for the timeout."""
        number = {self.nodes[i]: i for i in clients}
        asks = [Message(to_record(content), dst_node_id=node, message_type=TYPE) for node in number]
        arrivals = []
        for reply in self.grid.send_and_receive(asks, timeout=timeout):
            client = number.get(reply.metadata.src_node_id)
            if client is not None:
                arrivals.append(arrival(client, reply))
        return arrivals


def arrival(client: int, reply: Message) -> Arrival:
    """Convert a reply to an arrival."""
    if reply.has_error():
        return Arrival(client, None, Fault(FaultKind.FAILED, client, f"Flower's error {reply.error.code}"))
    try:
        return Arrival(client, content_of(reply))
    except (KeyError, TypeError):
        return Arrival(client, None, Fault(FaultKind.BAD_MESSAGE, client, "the reply has no content"))


def client_app(answer_of: Callable[[Context], Callable[[bytes], bytes]], name: Callable[[Context], str]) -> ClientApp:
    """The ClientApp of a site: it answers messages and reports its site name."""
    app = ClientApp()

    @app.query("fedsaddle")  # type: ignore[untyped-decorator]
    def answer(message: Message, context: Context) -> Message:
        return Message(to_record(answer_of(context)(content_of(message))), reply_to=message)

    @app.query("fedsaddle_who")  # type: ignore[untyped-decorator]
    def who(message: Message, context: Context) -> Message:
        return Message(to_record(name(context).encode()), reply_to=message)

    return app


def find_nodes(grid: Any, names: Sequence[str], timeout: float) -> dict[str, int]:
    """Map site names to nodes: each node reports its own name, and a name that two nodes report is ignored."""
    asks = [Message(to_record(b""), dst_node_id=node, message_type=WHO) for node in grid.get_node_ids()]
    found: dict[str, list[int]] = {}
    for reply in grid.send_and_receive(asks, timeout=timeout) if asks else []:
        answer = arrival(0, reply)
        if answer.content is not None:
            found.setdefault(answer.content.decode(errors="replace"), []).append(reply.metadata.src_node_id)
    return {name: nodes[0] for name, nodes in found.items() if name in names and len(nodes) == 1}
