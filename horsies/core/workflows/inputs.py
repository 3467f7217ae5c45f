"""What a node is called with: its own arguments, the results of others or their values, and the context (F-33 to F-37);
and how a map becomes its elements (F-95).

Everything here is JSON text that is cut and combined as it stands: the child that runs the task decodes it by its
types.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from horsies.core.codec.serde import serialize_error_payload
from horsies.core.models import codes, tasks
from horsies.core.models.workflow.registry import InputError, with_members
from horsies.core.store.workflows import Payload, Source
from horsies.core.types import WorkflowTaskStatus

CTX, META = "workflow_ctx", "workflow_meta"

NO_RESULT = '{"ok":null}'

_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"
_OK = re.compile(r'\{[ \t\r\n]*"ok"[ \t\r\n]*:[ \t\r\n]*')


def sources_of(payload: Payload) -> set[int]:
    """The indexes of the nodes whose results this node uses."""
    taken = {*(_wanted(entry).node for entry in payload.args_from.values()), *(payload.ctx_from or ())}
    if payload.node_type == "MAP" and payload.map_options is not None:
        taken.add(payload.map_options["over"])
    return taken


def result_of(source: Source) -> str | None:
    """The result as others see it: that of a skipped node says so, and a running node has none yet (F-34, F-35)."""
    if source.status is WorkflowTaskStatus.SKIPPED:
        error = tasks.TaskError(
            error_code=codes.OutcomeCode.UPSTREAM_SKIPPED,
            message=f"The node {source.node_id} was skipped.",
            data={"dependency_index": source.task_index},
        )
        return serialize_error_payload(tasks.TaskResult(err=error))
    return (source.result or NO_RESULT) if source.status.is_terminal else None


def injected(payload: Payload, sources: Mapping[int, Source]) -> dict[str, str]:
    """For each parameter of `args_from`, the JSON of what it takes. A source that has nothing for it is left out, and
    the parameter keeps its default."""
    found: dict[str, str] = {}
    for name, entry in payload.args_from.items():
        index, form = _wanted(entry)
        if index not in sources:
            raise InputError(f"the node {index}, which {name!r} comes from, does not exist")
        given = result_of(sources[index]) if form == "result" else _value_of(sources[index], form)
        if given is not None:
            found[name] = given
    return found


def arguments(payload: Payload, sources: Mapping[int, Source]) -> str | None:
    """The keyword arguments of the node's task as JSON; None if it has none."""
    members = injected(payload, sources)
    if payload.ctx_from is not None:
        members[CTX] = context_of(payload, sources)
    return with_members(payload.kwargs, members)


def context_of(payload: Payload, sources: Mapping[int, Source], task_index: int | None = None) -> str:
    """The context of a node (F-36); an element of a map has its own index in it."""
    place = payload.task_index if task_index is None else task_index
    listed = [sources[index] for index in payload.ctx_from or () if index in sources]
    return context(payload.workflow_id, place, payload.task_name, listed)


def context(workflow_id: str, index: int, task_name: str, sources: Iterable[Source] = ()) -> str:
    """The context for a task that declares `workflow_ctx`. A source that has not ended is left out (F-35)."""
    results, summaries = [], []
    for source in sources:
        if (result := result_of(source)) is not None:
            results.append(f"{json.dumps(source.node_id)}:{result}")
        if source.summary is not None:
            summaries.append(f"{json.dumps(source.node_id)}:{source.summary}")
    head = meta(workflow_id, index, task_name)[:-1]
    return f'{head},"results":{{{",".join(results)}}},"summaries":{{{",".join(summaries)}}}}}'


def meta(workflow_id: str, index: int, task_name: str) -> str:
    """The value for a task that declares `workflow_meta` (F-37)."""
    return json.dumps({"workflow_id": workflow_id, "task_index": index, "task_name": task_name})


@dataclass(frozen=True, slots=True)
class Expansion:
    """The rows of the elements, READY, and what the row of the map stores about them."""

    rows: list[dict[str, Any]]
    options: str
    max_parallel: int | None


def expand(payload: Payload, sources: Mapping[int, Source], first: int) -> Expansion:
    """One row for each member of the list, with indexes from `first` on. `InputError` if there is no list."""
    options = dict(payload.map_options or {})
    if "over" not in options:
        raise InputError("its row does not name the node that it maps over")
    members = elements(sources.get(options["over"]))
    if options.get("takes_values"):
        members = [ok_text(member) for member in members]
    arguments = _arguments_for(payload, sources, options["param"])
    rows: list[dict[str, Any]] = [
        {
            "workflow_id": payload.workflow_id,
            "task_index": first + position,
            "node_id": f"{payload.node_id}[{position}]",
            "node_type": "ELEMENT",
            "task_name": payload.task_name,
            "task_kwargs": arguments(member, first + position),
            "queue_name": payload.queue_name,
            "priority": payload.priority,
            "task_options": payload.task_options,
            "flags": payload.flags,
            "good_until": payload.good_until and payload.good_until.isoformat(),
            "dependencies": [],
            "dependents": [],
            "args_from": {},
            "join_type": "all",
            "allow_failed_deps": False,
            "status": WorkflowTaskStatus.READY,
            "map_index": payload.task_index,
            "map_position": position,
        }
        for position, member in enumerate(members)
    ]
    kept = json.dumps({**options, "first": first, "count": len(rows)})
    return Expansion(rows, kept, options.get("max_parallel"))


def elements(source: Source | None) -> list[str]:
    """The members of the list that a map goes over, each as its original JSON text."""
    result = None if source is None else result_of(source)
    members = _members(result or "")
    if source is None or members is None:
        kind = "was skipped" if source and source.status is WorkflowTaskStatus.SKIPPED else "gave no list"
        raise InputError(f"the node {source.node_id if source else '?'}, which it maps over, {kind}")
    return members


def ok_text(result: str) -> str:
    """The value of a result, as its original JSON text. `InputError` if the text is no ok result."""
    found = _ok_text(result)
    if found is None:
        raise InputError("a result that it takes the value of has no value")
    return found


def mapped_result(results: Iterable[str | None]) -> str:
    """The result of a map: the list of the results of its elements, in the order of the list."""
    return f'{{"ok":[{",".join(result or NO_RESULT for result in results)}]}}'


def _arguments_for(payload: Payload, sources: Mapping[int, Source], param: str) -> Callable[[str, int], str]:
    """Makes the arguments of one element: those of the map, the element in its parameter, and its own place."""
    base, wants_meta = _without_meta(payload.kwargs)
    shared = injected(payload, sources)

    def arguments(member: str, index: int) -> str:
        own = {param: member}
        if wants_meta:
            own[META] = meta(payload.workflow_id, index, payload.task_name)
        if payload.ctx_from is not None:
            own[CTX] = context_of(payload, sources, index)
        return with_members(base, {**shared, **own}) or "{}"

    return arguments


def _without_meta(kwargs: str | None) -> tuple[str | None, bool]:
    """The arguments of a map without its own place, which differs from that of its elements; and whether it was
    there."""
    if kwargs is None or f'"{META}"' not in kwargs:
        return kwargs, False
    given = json.loads(kwargs)
    had = given.pop(META, None) is not None
    return json.dumps(given), had


class _Wanted(NamedTuple):
    node: int
    form: Any


def _wanted(entry: Any) -> _Wanted:
    """An entry of `args_from`: an index stands for the whole result of that node."""
    index, form = (entry.get("node"), entry.get("takes")) if isinstance(entry, dict) else (entry, "result")
    return _Wanted(index if isinstance(index, int) else -1, form)  # there is no node -1


def _value_of(source: Source, form: Any) -> str | None:
    """The value of a node that has completed, or those of the elements of a map; None if it has not (F-34, F-35)."""
    if source.status is not WorkflowTaskStatus.COMPLETED:
        return None
    if form == "value":
        return ok_text(source.result or NO_RESULT)
    return f"[{','.join(ok_text(member) for member in elements(source))}]"


def _ok_text(result: str) -> str | None:
    """The text of the value in `{"ok": ...}`, cut out unchanged; None if it is something else."""
    text = result.strip()
    head = _OK.match(text)
    try:
        if head is None:
            return None
        end = _DECODER.raw_decode(text, head.end())[1]
        return text[head.end() : end] if text[end:].lstrip(_SPACE) == "}" else None
    except (ValueError, RecursionError):
        return None


def _members(result: str) -> list[str] | None:
    """The texts of the list in `{"ok": [...]}`, cut out unchanged; None if it is something else."""
    text = _ok_text(result)
    if text is None or not text.startswith("["):
        return None
    members: list[str] = []
    place = 0
    while True:
        place = _skip(text, place + 1)
        if text[place] == "]":
            return members
        end = _DECODER.raw_decode(text, place)[1]
        members.append(text[place:end])
        place = _skip(text, end)
        if text[place] == "]":
            return members


def _skip(text: str, place: int) -> int:
    while text[place] in _SPACE:
        place += 1
    return place
