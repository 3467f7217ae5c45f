"""Checks the workflow itself: name, key, nodes and their ids (HRS-001 to HRS-004, HRS-016)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from horsies.core.errors import ErrorCode, HorsiesError
from horsies.core.models.workflow.enums import OnError
from horsies.core.models.workflow.nodes import MAX_ID_LENGTH
from horsies.core.workflows.draft import Draft

MAX_NAME_LENGTH = 255
_NODE_ID = re.compile(r"[A-Za-z0-9_\-:.]+")


def problems(draft: Draft) -> Iterator[HorsiesError]:
    """The mistakes."""
    yield from _texts(draft)
    if not draft.nodes:
        help_text = "tasks=[a.node()(...), ...]; a definition with build_with must be built by build_with"
        yield draft.error(ErrorCode.WORKFLOW_NO_NODES, "it has no nodes", help_text)
    if draft.on_error not in list(OnError):
        yield draft.error(ErrorCode.CONFIG_INVALID, f"on_error must be 'fail' or 'pause', not {draft.on_error!r}")
    yield from _ids(draft)


def _texts(draft: Draft) -> Iterator[HorsiesError]:
    name, key = draft.name, draft.definition_key
    if not isinstance(name, str) or not name.strip():
        yield draft.error(ErrorCode.WORKFLOW_NO_NAME, "it has no name")
    elif len(name) > MAX_NAME_LENGTH or "\0" in name:
        yield draft.error(
            ErrorCode.WORKFLOW_NO_NAME, f"a name must have 1 to {MAX_NAME_LENGTH} characters, without NUL"
        )
    if not isinstance(key, str) or not key.strip() or len(key) > MAX_NAME_LENGTH or "\0" in key:
        yield draft.error(
            ErrorCode.WORKFLOW_NO_DEFINITION_KEY,
            f"it has no definition_key of 1 to {MAX_NAME_LENGTH} characters",
            "workers find the definition by its definition_key; keep the key when code moves",
        )


def _ids(draft: Draft) -> Iterator[HorsiesError]:
    seen: dict[str, int] = {}
    placed: dict[int, int] = {}
    for index, (node, node_id) in enumerate(zip(draft.nodes, draft.ids, strict=True)):
        if not isinstance(node_id, str) or len(node_id) > MAX_ID_LENGTH or not _NODE_ID.fullmatch(node_id):
            text = (
                f"node_id must match [A-Za-z0-9_\\-:.]+ and have 1 to {MAX_ID_LENGTH} characters, not {node_id!r:.200}"
            )
            yield draft.node_error(index, ErrorCode.WORKFLOW_INVALID_NODE_ID, text)
            continue
        if (first := placed.setdefault(id(node.origin), index)) != index:
            text = f"the same node is listed twice, at {first} and at {index}; make a second node"
            yield draft.node_error(index, ErrorCode.WORKFLOW_DUPLICATE_NODE_ID, text)
        elif (first := seen.setdefault(node_id, index)) != index:
            error = draft.node_error(
                index,
                ErrorCode.WORKFLOW_DUPLICATE_NODE_ID,
                f"node {first} has the same id; give one of them another node_id",
            )
            yield error.with_note(f"the first one is at {draft.nodes[first].location}")
