"""Checks the size of payloads: it warns once per task and kind, or refuses."""

from __future__ import annotations

import logging

from horsies.core.models.app import PayloadPolicy

logger = logging.getLogger("horsies.payload")


class SizeGuard:
    """The payload policy of one app, with a record of the warnings in this process."""

    def __init__(self, policy: PayloadPolicy) -> None:
        self._policy = policy
        self._warned: set[tuple[str, str]] = set()
        # Up to here a text is small enough without counting: a character has at most four bytes.
        limits = [limit for limit in (policy.warn_bytes, policy.reject_bytes) if limit is not None]
        self._harmless_chars = min(limits) // 4 if limits else None

    def refusal(self, task_name: str, *texts: str | None) -> str | None:
        """Why these arguments are too large to be sent; None if they may be sent (with a warning if they are large)."""
        size = self._size(texts)
        limit = self._policy.reject_bytes
        if limit is not None and size > limit:
            return (
                f"the arguments have {size} bytes, more than the {limit} that PayloadPolicy.reject_bytes allows; "
                "store the data elsewhere and send a reference to it"
            )
        self._warn(task_name, "arguments", size)
        return None

    def watch(self, task_name: str, kind: str, text: str) -> None:
        """Warn if the text is large. Nothing is refused: results and workflow nodes only cause warnings."""
        self._warn(task_name, kind, self._size((text,)))

    def _size(self, texts: tuple[str | None, ...]) -> int:
        if self._harmless_chars is None or sum(len(text) for text in texts if text) <= self._harmless_chars:
            return 0
        return sum(len(text.encode()) for text in texts if text)

    def _warn(self, task_name: str, kind: str, size: int) -> None:
        limit = self._policy.warn_bytes
        if limit is None or size <= limit or (task_name, kind) in self._warned:
            return
        self._warned.add((task_name, kind))
        logger.warning("task %s: %s of %d bytes, more than %d (logged once per process)", task_name, kind, size, limit)
