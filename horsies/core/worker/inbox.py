"""The tasks that a child has received and not run yet. The io thread fills it, and the main thread empties it.

There are no locks: each step is one operation on a dict or a deque, which is atomic in Python. `_waiting` decides who
gets a task, the main thread that runs it or the supervisor that takes it back: only one of them can pop it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import NamedTuple

PLAIN_PARTS = 4  # of a task that is not traced


class Item(NamedTuple):
    """One task to run, as it was received."""

    token: int
    parts: list[bytes]  # task name, args, kwargs, what to note in the start journal, and what its span says

    @property
    def task_name(self) -> str:
        return self.parts[0].decode("utf-8", "replace")

    @property
    def args(self) -> str | None:
        return _text(self.parts[1])

    @property
    def kwargs(self) -> str | None:
        return _text(self.parts[2])

    @property
    def entry(self) -> bytes:
        return self.parts[3]

    @property
    def about(self) -> bytes:
        """What its span says: present only if there are more than `PLAIN_PARTS`."""
        return self.parts[PLAIN_PARTS]


class Inbox:
    """Tasks in the order of their arrival."""

    def __init__(self) -> None:
        self.held: set[int] = set()  # handed in and not yet reported done or given up
        self.is_closed = False
        self._order: deque[int] = deque()
        self._waiting: dict[int, Item] = {}
        self._is_asleep = False
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._on_change: Callable[[], None] = self._ring

    # The io thread

    def put(self, items: Iterable[Item]) -> None:
        for item in items:
            self.held.add(item.token)
            self._waiting[item.token] = item
            self._order.append(item.token)
        self._on_change()

    def take_back(self, tokens: Iterable[int]) -> list[int]:
        """Remove tasks that have not been taken to run; return those that were removed."""
        removed = [token for token in tokens if self._waiting.pop(token, None) is not None]
        self.held.difference_update(removed)
        return removed

    def close(self) -> None:
        """Nothing more will come: `wait` returns None once everything has been taken."""
        self.is_closed = True
        self._on_change()

    # The main thread

    def poll(self) -> Item | None:
        """Take the next task, if there is one."""
        order = self._order
        while order:
            item = self._waiting.pop(order.popleft(), None)
            if item is not None:
                return item
        return None

    def peek(self) -> Item | None:
        """Look at the next task. It can still be taken back before it is taken."""
        order = self._order
        while order:
            item = self._waiting.get(order[0])
            if item is not None:
                return item
            order.popleft()
        return None

    def take(self, peeked: Item) -> bool:
        """Take the task that `peek` has just shown. False if it was taken back in between."""
        self._order.popleft()
        return self._waiting.pop(peeked.token, None) is not None

    def wait(self) -> Item | None:
        """Take the next task, and sleep until there is one. None if there will be none."""
        while True:
            self._is_asleep = True  # before the last look: whoever puts something after that look will ring
            item = self.poll()
            if item is not None or self.is_closed:
                self._is_asleep = False
                return item
            self._bell.get()

    def notify(self, callback: Callable[[], None] | None) -> None:
        """Set who is informed of changes: the sleeping main thread, or else this callback."""
        self._on_change = callback or self._ring

    def _ring(self) -> None:
        if self._is_asleep:
            self._is_asleep = False
            self._bell.put(None)


def _text(part: bytes) -> str | None:
    return part.decode("utf-8", "surrogatepass") if part else None
