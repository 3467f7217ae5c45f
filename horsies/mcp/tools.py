"""What a tool is: its name and words, the model of its parameters, and the function that answers. The same declaration
tells the agent about the tool, reads what the agent sends, and is what the tests go through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from horsies.core.app import Horsies
from horsies.core.brokers.postgres import PostgresBroker
from horsies.core.models.app import AppConfig
from horsies.core.models.broker import PostgresConfig
from horsies.core.models.monitoring.tasks import MonitoringResult
from horsies.core.monitoring.changes import read_schema_version
from horsies.core.monitoring.masking import Masking, names_known_to, unknown_names
from horsies.core.schema.install import SCHEMA_VERSION
from horsies.core.types import Ok
from horsies.mcp import bounds

T = TypeVar("T")
MOST_AT_ONCE = 4  # calls, each with a connection; the others wait in line
PATIENCE_S = 5  # for a connection
LONGEST_CALL_S = 60.0
FINISH_S = 2.0  # for actions that have begun, at the end
MOST_LISTED = 100
MOST_NAMES = 50
MOST_REFUSALS = 5  # that are told of one call

Text: TypeAlias = Annotated[str, Field(max_length=1_000)]
Texts: TypeAlias = Annotated[list[Text], Field(max_length=MOST_NAMES)]
Moment: TypeAlias = AwareDatetime
Limit: TypeAlias = Annotated[int, Field(ge=1, le=MOST_LISTED, description="how many at most")]
# Agents write states as they like.
UPPER = BeforeValidator(lambda word: word.upper() if isinstance(word, str) else word)


class ToolRefusal(Exception):
    """A call that is not answered as it was meant: a word for programs, and a sentence for the agent."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")


class NoParameters(BaseModel):
    """A tool that needs to know nothing; the parameters of every other tool."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class OfTask(NoParameters):
    task_id: Text = Field(description="the id of the task")


class OfWorkflow(NoParameters):
    workflow_id: Text = Field(description="the id of the workflow")


@dataclass(frozen=True, slots=True, eq=False)
class McpTool:
    """A tool of the server. One with an `action` changes something; `destroys`, if that cannot be undone."""

    name: str
    title: str
    doc: str
    given: type[NoParameters]
    ask: Callable[[Workbench, Any], Awaitable[Any]]
    action: str | None = None
    destroys: bool = False

    def parameters(self, arguments: Mapping[str, Any] | None) -> NoParameters:
        try:
            return self.given.model_validate(dict(arguments or {}))
        except ValidationError as problem:
            raise ToolRefusal("INVALID_ARGUMENT", "; ".join(self._refusals(problem))) from None

    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of the parameters, without references: not every client follows them."""
        schema = self.given.model_json_schema()
        known = schema.pop("$defs", {})
        inlined: dict[str, Any] = _inlined(schema, known)
        inlined.pop("description", None)
        return inlined

    def _refusals(self, problem: ValidationError) -> Iterator[str]:
        """What is wrong with the arguments, in words that are enough to do it right."""
        found = problem.errors(include_url=False, include_context=False, include_input=False)
        unknown = [_place(one["loc"]) for one in found if one["type"] == "extra_forbidden"]
        for one in [one for one in found if one["type"] != "extra_forbidden"][:MOST_REFUSALS]:
            missing = one["type"] == "missing" and self.given.model_fields.get(str(one["loc"][0]))
            said = f"must be given ({missing.description})" if missing else one["msg"]
            yield f"{_place(one['loc'])}: {said}"
        if unknown:
            more = f" and {len(unknown) - MOST_REFUSALS} more" if len(unknown) > MOST_REFUSALS else ""
            takes = ", ".join(self.given.model_fields) or "no arguments"
            yield f"there is no argument {', '.join(unknown[:MOST_REFUSALS])}{more}: {self.name} takes {takes}"


class Workbench:
    """What all tools share: the database, the app if there is one, what is not shown, and who acts."""

    def __init__(self, source: Horsies | PostgresConfig, *, actor: str, masking: Masking | None = None) -> None:
        self.app = source if isinstance(source, Horsies) else None
        self.database = _modest(source.config.broker if isinstance(source, Horsies) else source)
        self.actor = actor
        self.masking = masking or Masking()
        self.broker = PostgresBroker(self.database, app=self.app)
        self.broker.only_look()
        # Without an app, what only the code of an app can do is left to the workers (F-64).
        self.acting_broker = self.broker.knowing(self.app or Horsies(AppConfig(broker=self.database)))
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._acting: set[asyncio.Task[Any]] = set()

    async def call(self, tool: McpTool, arguments: Mapping[str, Any] | None) -> bounds.BoundedAnswer:
        """The answer of a tool, masked and bounded; raises a `ToolRefusal` with words that may be shown."""
        given = tool.parameters(arguments)
        asking = self._asked(tool, given) if tool.action is None else self._begun(tool, given)
        try:
            async with asyncio.timeout(LONGEST_CALL_S):
                answer = await asking
        except TimeoutError:
            hint = "try again later" if tool.action is None else "look whether it was done before you try again"
            raise ToolRefusal("QUERY_TIMEOUT", f"there was no answer within {LONGEST_CALL_S:g} s; {hint}") from None
        longest = getattr(given, "max_chars", bounds.LONGEST_TEXT)
        return await asyncio.to_thread(self._shown, answer, longest)

    async def close(self) -> None:
        """Let actions end that have begun, and close the connections."""
        if self._acting:
            await asyncio.wait(self._acting, timeout=FINISH_S)
        await self.broker.close_async()

    async def _asked(self, tool: McpTool, given: NoParameters) -> Any:
        async with self._places:
            await self._refuse_without_tables(acts=tool.action is not None)
            return await tool.ask(self, given)

    def _begun(self, tool: McpTool, given: NoParameters) -> asyncio.Future[Any]:
        """An action goes on if nobody waits for it any more, so that the audit says what came of it."""
        action = asyncio.create_task(self._asked(tool, given))
        self._acting.add(action)
        action.add_done_callback(self._ended)
        return asyncio.shield(action)

    def _ended(self, action: asyncio.Task[Any]) -> None:
        self._acting.discard(action)
        if not action.cancelled():
            action.exception()  # who still waits gets it; nobody else needs to hear of it

    def redact(self, text: str) -> str:
        return self.database.redact(text)

    def _shown(self, answer: Any, longest: int) -> bounds.BoundedAnswer:
        return bounds.bounded(self.masking.applied_to(answer), longest=longest, redact=self.redact)

    async def _refuse_without_tables(self, *, acts: bool) -> None:
        version = value_of(await read_schema_version(self.broker), may_be_none=True)
        if version is None:
            words = "there are no horsies tables in this database; horsies init-db creates them"
            raise ToolRefusal("SCHEMA_ABSENT", words)
        if acts and version != SCHEMA_VERSION:
            words = f"the tables are of version {version}, and this server knows version {SCHEMA_VERSION}"
            raise ToolRefusal("SCHEMA_INCOMPATIBLE", words)


def masking_for(app: Horsies | None, names: tuple[str, ...], *, hides_all: bool) -> Masking:
    """What is not shown of the tasks of an app."""
    known = unknown_names if app is None else names_known_to(app.tasks)
    return Masking.of(names or None, hides_all=hides_all, positional=known)


def value_of(result: MonitoringResult[T | None], *, may_be_none: bool = False) -> Any:
    """The answer of a query; raises a `ToolRefusal` if there is none."""
    if not isinstance(result, Ok):
        error = result.error
        again = " (try again in a moment)" if error.retryable else ""
        raise ToolRefusal(error.code.value, f"{error.message}{again}")
    if result.value is None and not may_be_none:
        raise ToolRefusal("NOT_FOUND", "nothing has this id")
    return result.value


def _place(parts: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:60] for part in parts) or "arguments"


def _inlined(schema: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inlined(one, known) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if (reference := schema.get("$ref")) is not None:
        target = known[reference.removeprefix("#/$defs/")]
        schema = {"type": target["type"], "enum": target["enum"]}
    return {name: _inlined(one, known) for name, one in schema.items() if name != "title" or isinstance(one, dict)}


def _modest(config: PostgresConfig) -> PostgresConfig:
    """The same database with few connections and little patience."""
    limits = {"pool_size": 1, "max_overflow": MOST_AT_ONCE}
    return PostgresConfig(**{**dict(config), **limits, "pool_timeout": min(config.pool_timeout, PATIENCE_S)})
