"""`Horsies`: the application. It owns the settings, the tasks, the modules to discover and one broker; it delegates
everything else (workflows: `app_workflows.py`).
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, TypeAlias, TypeVar, Unpack, overload

from horsies.core import app_workflows, errors, task_decorator
from horsies.core.hooks import HookRegistry
from horsies.core.models.app import AppConfig
from horsies.core.models.queues import QueueMode
from horsies.core.producer.reads import Reads
from horsies.core.tasks.definition import SizeGuard
from horsies.core.tasks.hooks import TakesHooks, TaskHooks
from horsies.core.types import run_sync

if TYPE_CHECKING:
    from horsies.core.brokers.postgres import PostgresBroker
    from horsies.core.models.broker import BrokerResult
    from horsies.core.models.tasks import TaskError, TaskResult
    from horsies.core.producer.send import Sender
    from horsies.core.recovery.utils import WorkerUtils
    from horsies.core.scheduler.runtime import Schedules
    from horsies.core.task_decorator import AnyResult
    from horsies.core.tasks.context import AsyncTaskContext, TaskContext
    from horsies.testing.kit import AppTesting

ChildProcessStartHook: TypeAlias = Callable[[], None]
H = TypeVar("H", bound=Callable[[], None])
P = ParamSpec("P")
T = TypeVar("T")


class Horsies(app_workflows.MakesWorkflows, TakesHooks, Reads):
    """An application: define tasks on it, send them, and let workers load it."""

    _current: ClassVar[Horsies | None] = None
    _loading: ClassVar[int] = 0

    def __init__(self, config: AppConfig, hooks: HookRegistry | None = None) -> None:
        if not isinstance(config, AppConfig):
            raise errors.misuse(
                f"Horsies takes an AppConfig, not {type(config).__name__}",
                "Horsies(AppConfig(broker=PostgresConfig(database_url=...)))",
            )
        if hooks is not None and not isinstance(hooks, HookRegistry):
            raise errors.misuse(f"hooks takes a HookRegistry, not {type(hooks).__name__}")
        super().__init__()
        self.location = errors.SourceLocation.of_caller()
        self.config = config
        self.hooks = HookRegistry() if hooks is None else hooks
        self.sizes = SizeGuard(config.payload)
        self.task_hooks = TaskHooks()
        self._tasks: dict[str, task_decorator.TaskFunction[Any, Any]] = {}
        self._modules: list[str] = []
        self._hooks: list[ChildProcessStartHook] = []
        self.queue_names = frozenset(queue.name for queue in config.queues())
        self._broker: PostgresBroker | None = None
        self._sender: Sender | None = None
        self._testing: AppTesting | None = None
        self._lock = threading.Lock()
        self._suppressed = False

    # The first ones are for `@app.task` without parentheses, as in `TaskDecorator`.
    @overload
    def task(
        self, task_name: Callable[Concatenate[AsyncTaskContext, P], Coroutine[Any, Any, AnyResult[T]]], /
    ) -> task_decorator.AsyncTaskFunction[P, T]: ...
    @overload
    def task(
        self, task_name: Callable[Concatenate[TaskContext, P], AnyResult[T]], /
    ) -> task_decorator.TaskFunction[P, T]: ...
    @overload
    def task(
        self, task_name: Callable[Concatenate[AsyncTaskContext, P], Coroutine[Any, Any, T]], /
    ) -> task_decorator.AsyncTaskFunction[P, T]: ...
    @overload
    def task(self, task_name: Callable[Concatenate[TaskContext, P], T], /) -> task_decorator.TaskFunction[P, T]: ...
    @overload
    def task(
        self, task_name: Callable[P, Coroutine[Any, Any, AnyResult[T]]], /
    ) -> task_decorator.AsyncTaskFunction[P, T]: ...
    @overload
    def task(self, task_name: Callable[P, AnyResult[T]], /) -> task_decorator.TaskFunction[P, T]: ...
    @overload
    def task(self, task_name: Callable[P, Coroutine[Any, Any, T]], /) -> task_decorator.AsyncTaskFunction[P, T]: ...
    @overload
    def task(self, task_name: Callable[P, T], /) -> task_decorator.TaskFunction[P, T]: ...
    @overload
    def task(
        self, task_name: str | None = None, **options: Unpack[task_decorator.TaskOptionArgs]
    ) -> task_decorator.TaskDecorator: ...
    def task(self, task_name: Any = None, **options: Unpack[task_decorator.TaskOptionArgs]) -> Any:
        """Turn the function below into a task. Without a name it is called `module.function`. The options are those of
        `TaskOptionArgs`."""
        if callable(task_name):
            return task_decorator.TaskDecorator(self, None, options)(task_name)
        return task_decorator.TaskDecorator(self, task_name, options)

    @property
    def tasks(self) -> Mapping[str, task_decorator.TaskFunction[Any, Any]]:
        """The registered tasks by name; read-only."""
        return MappingProxyType(self._tasks)

    def list_tasks(self) -> list[str]:
        return sorted(self._tasks)

    def register(self, task: task_decorator.TaskFunction[Any, Any]) -> None:
        """Add a task to the registry. A name belongs to one function."""
        known, name = self._tasks.get(task.task_name), task.fn.__qualname__
        # The same lines may run again, because a module was imported under a second name or reloaded. Two calls of a
        # factory are not the same.
        is_again = known is not None and (known.location, known.fn.__qualname__) == (task.location, name)
        if known is not None and not (is_again and "<locals>" not in name):
            error = errors.RegistryError(
                f"a task named {task.task_name!r} exists already",
                code=errors.ErrorCode.TASK_DUPLICATE_NAME,
                location=task.location,
                help_text="give one of them another name",
            )
            raise error.with_note(f"the first one is {known.fn.__qualname__} at {known.location}")
        self._tasks[task.task_name] = task

    def validate_queue_name(self, name: str) -> None:
        """Raise a `ConfigurationError` if tasks cannot be in this queue."""
        if problem := self.queue_problem(name):
            raise errors.misuse(problem, code=errors.ErrorCode.TASK_INVALID_QUEUE)

    def queue_problem(self, name: str) -> str | None:
        """Why this queue does not exist; None if it exists."""
        if name in self.queue_names:
            return None
        return f"there is no queue {name!r}; known: {', '.join(sorted(self.queue_names))}"

    def task_queue_problem(self, queue_name: str | None) -> str | None:
        """Why a task cannot be declared with this queue name; None if it can."""
        if self.config.queue_mode is QueueMode.DEFAULT:
            return (
                None if queue_name is None else "queue_name is only for QueueMode.CUSTOM; this app has a single queue"
            )
        if queue_name is None:
            return f"in QueueMode.CUSTOM every task must name its queue: {', '.join(sorted(self.queue_names))}"
        return self.queue_problem(queue_name)

    def discover_tasks(self, modules: list[str]) -> None:
        """Name modules that define tasks. Nothing is imported yet. Another call adds to what is already named; a module
        that is named twice is imported once."""
        if isinstance(modules, str) or not all(isinstance(module, str) and module for module in modules):
            raise errors.misuse("discover_tasks takes a list of module names or paths of .py files")
        self._modules.extend(module for module in modules if module not in self._modules)

    def expand_module_globs(self, patterns: list[str]) -> list[str]:
        """Entries for `discover_tasks`, sorted: the Python files that match the patterns, and every entry that is no
        pattern (`shop.tasks`, `jobs/mail.py`), as it is. Patterns leave out tests: `test_*.py`, `*_test.py` and
        `conftest.py`."""
        from horsies.core import discovery

        return discovery.expand_globs(patterns)

    def get_discovered_task_modules(self) -> list[str]:
        return list(self._modules)

    def import_modules(self) -> None:
        """Import every discovered module, with sends suppressed; raise all errors of these modules together."""
        report = errors.ValidationReport(phase="imports")
        self.collect_imports(report)
        report.raise_if_any()

    def collect_imports(self, report: errors.ValidationReport) -> None:
        """The same as `import_modules`, but return the errors in a report."""
        from horsies.core import discovery

        with self._suppressing():
            for module in self._modules:
                try:
                    discovery.import_entry(module)
                except errors.HorsiesError as error:
                    report.add(error)

    def suppress_sends(self, suppress: bool = True) -> None:
        """While suppressed, sends return SEND_SUPPRESSED and write nothing."""
        self._suppressed = suppress

    @contextmanager
    def _suppressing(self) -> Iterator[None]:
        before, self._suppressed = self._suppressed, True
        try:
            yield
        finally:
            self._suppressed = before

    @property
    def sends_suppressed(self) -> bool:
        return self._suppressed or Horsies._loading > 0

    @classmethod
    @contextmanager
    def loading(cls) -> Iterator[None]:
        """Used while a worker, a scheduler or a check imports the app's module: no app sends during that time
        (T-47)."""
        Horsies._loading += 1
        try:
            yield
        finally:
            Horsies._loading -= 1

    def check(self, *, live: bool = False) -> list[errors.HorsiesError]:
        """The mistakes in this app, as errors and warnings (`CheckWarning`); an empty list if there are none. With
        `live`, also check the database, and whether this code can run the tasks waiting there."""
        from horsies.core import checks

        return checks.check(self, live=live)

    def on_child_process_start(self, fn: H) -> H:
        """Run this function once in every child process, after its imports. Usable as a decorator."""
        if problem := _hook_problem(fn):
            raise errors.misuse(problem, code=errors.ErrorCode.CHILD_HOOK_INVALID, of=fn)
        if fn not in self._hooks:
            self._hooks.append(fn)
        return fn

    def get_child_process_start_hooks(self) -> list[ChildProcessStartHook]:
        return list(self._hooks)

    @classmethod
    def current(cls) -> Horsies | None:
        """The app of this process, if one is set; workers set it in their children."""
        return Horsies._current

    def make_current(self) -> None:
        Horsies._current = self

    def get_broker(self) -> PostgresBroker:
        """The app's broker, made at first use. It connects at its first call."""
        from horsies.core.brokers.postgres import PostgresBroker

        with self._lock:
            if self._broker is None:
                self._broker = PostgresBroker(self.config.broker, app=self)
            return self._broker

    def _reads(self) -> PostgresBroker:
        return self.get_broker()

    def worker_utils(self) -> WorkerUtils:
        """What an operator can do with workers, with the settings and hooks of this app."""
        from horsies.core.recovery.utils import WorkerUtils

        return WorkerUtils(self.get_broker())

    @property
    def schedules(self) -> Schedules:
        """The schedules of this app: add, pause, trigger and list them at run time."""
        from horsies.core.scheduler.runtime import Schedules

        return Schedules(self, self.get_broker)

    @property
    def sender(self) -> Sender:
        """The object that writes the sends of this app."""
        if self._sender is None:
            from horsies.core.producer.send import Sender

            self._sender = Sender(self.get_broker(), resend=self.config.resend_on_transient_err)
        return self._sender

    @property
    def testing(self) -> AppTesting:
        """For tests of your own code: run what is sent in this process, look at it, let time pass, crash workers."""
        if self._testing is None:
            from horsies.testing import AppTesting

            self._testing = AppTesting(self)
        return self._testing

    @contextmanager
    def replaced(
        self, *, config: AppConfig | None = None, broker: PostgresBroker | None = None, sender: Sender | None = None
    ) -> Iterator[None]:
        """Used by tests: with another configuration, such as that of the test's database, or with a broker and a sender
        of their own. What was opened meanwhile is closed at the end."""
        before = self.config, self._broker, self._sender
        self.config, self._broker, self._sender = config or self.config, broker, sender
        try:
            yield
        finally:
            meanwhile = self._broker
            self.config, self._broker, self._sender = before
            if meanwhile is not None and meanwhile is not self._broker:
                meanwhile.close()

    async def get_result_async(
        self, task_id: str, timeout_ms: int | None = None
    ) -> BrokerResult[TaskResult[Any, TaskError]]:
        """Wait for a task by its id. The outer error is a failure of the infrastructure, the inner one is the task's
        own."""
        return await self.get_broker().get_typed_result_async(task_id, timeout_ms)

    get_result = run_sync(get_result_async)

    def __repr__(self) -> str:
        return f"<Horsies with {len(self._tasks)} task(s) on {self.config.broker.display_url()}>"


def _hook_problem(fn: Any) -> str | None:
    if not callable(fn):
        return f"a child start hook is a function, not {type(fn).__name__}"
    name = getattr(fn, "__qualname__", repr(fn))
    if inspect.iscoroutinefunction(fn):
        return f"child start hook {name} must not be async: it runs before any event loop"
    required = [
        parameter.name
        for parameter in inspect.signature(fn).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    return f"child start hook {name} must take no arguments, but needs {', '.join(required)}" if required else None
