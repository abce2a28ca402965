"""Exchange of messages with nodes: replies are read one at a time, so that they are never all in memory."""

from collections import Counter
from collections.abc import Iterator, Sequence
from time import monotonic, sleep
from typing import TypeVar

from flwr.app import Error, Message
from flwr.serverapp import Grid

from fedtaco.flower.log import log

GROUP_SIZE = 8
"""Number of messages that are sent at once, and of replies that are pulled at once."""
PAUSE = 0.5
"""Seconds between two attempts to pull replies."""
MAX_TRIES = 3
"""Number of attempts to pull a reply before it is treated as unreadable."""
UNREADABLE = 0
"""Flower's code for an unknown error."""


Item = TypeVar("Item")


class Exchange:
    """Sends messages to nodes, yields replies as they arrive, and knows which node each reply is from.

    Parameters
    ----------
    grid
        Flower's connection to the nodes.
    timeout
        Maximum number of seconds to wait for nodes, and for the replies to a set of messages.
    """

    def __init__(self, grid: Grid, timeout: float) -> None:
        self.grid, self.timeout = grid, timeout
        self.asked: dict[str, Message] = {}
        self.failures: Counter[str] = Counter()

    def node_of(self, reply: Message) -> int:
        """Return the node that a reply is from; if Flower reports an error, the reply itself does not name the node."""
        asked = self.asked.get(reply.metadata.reply_to_message_id)
        return reply.metadata.src_node_id if asked is None else asked.metadata.dst_node_id

    def replies(self, messages: Sequence[Message]) -> Iterator[Message]:
        """Send messages, and yield their replies until all have arrived or the time is up."""
        self.asked = {}
        self.failures.clear()
        for group in _groups(messages):
            for identity, message in zip(self.grid.push_messages(group), group, strict=False):
                if identity:
                    self.asked[identity] = message
        if len(self.asked) < len(messages):
            log.warning("%d of %d messages could not be sent.", len(messages) - len(self.asked), len(messages))
        waiting, deadline = list(self.asked), monotonic() + self.timeout
        while waiting:
            before = len(waiting)
            for identities in _groups(list(waiting)):
                for reply in self._pull(identities):
                    identity = reply.metadata.reply_to_message_id
                    if identity in waiting:
                        waiting.remove(identity)
                    yield reply
            if monotonic() > deadline:
                return
            if len(waiting) == before:
                sleep(PAUSE)

    def _pull(self, identities: list[str]) -> Iterator[Message]:
        """Yield the replies that have arrived; one that Flower cannot read becomes an error message."""
        try:
            yield from self.grid.pull_messages(identities)
        except Exception as error:
            if len(identities) == 1:
                self.failures[identities[0]] += 1
                if self.failures[identities[0]] < MAX_TRIES:
                    return
                problem = Error(UNREADABLE, f"its reply cannot be read: {error}")
                yield Message(problem, reply_to=self.asked[identities[0]])
                return
            for identity in identities:
                yield from self._pull([identity])


def _groups(items: Sequence[Item]) -> Iterator[list[Item]]:
    for start in range(0, len(items), GROUP_SIZE):
        yield list(items[start : start + GROUP_SIZE])
