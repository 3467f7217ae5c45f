"""A child process of a worker, from the moment it is forked: load the app, then run tasks until told to leave (W-40).

    load the app → make it current → suppress sends → import modules, check → lift → start hooks → READY → tasks → BYE

Its only connection is one socket to the supervisor; it opens no database connection, except when a task sends other
tasks. It has two threads: the main thread, which runs user code (`run.py`, or `helper.py` in a helper), and the io
thread (`io.py`).
"""

import atexit
import contextlib
import faulthandler
import json
import multiprocessing
import os
import signal
import socket
import sys
import threading
import traceback
import types
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from horsies.core import discovery, errors, hooks, locate, logs, tracing
from horsies.core.app import Horsies
from horsies.core.checks import require_sound
from horsies.core.child import capture, forkserver, helper, run, wire
from horsies.core.child.io import EXIT_BROKEN, ChildIO, Inbox, Uplink, leave
from horsies.core.child.notes import Notes
from horsies.core.models.app import AppConfig
from horsies.core.models.tasks import TaskError, TaskResult
from horsies.core.models.workflow.registry import build_plan
from horsies.core.recovery.start_journal import Notebook
from horsies.core.scheduler.payloads import prepared
from horsies.core.tasks import catalogue
from horsies.core.tasks.context import mark_log_records

TRACEBACK_LINES = 40


def child_main(sock: socket.socket, outbox: wire.Outbox, spec_json: bytes, name: str) -> NoReturn:
    """The whole life of a child. The fork server calls this in the forked process."""
    spec = wire.ChildSpec.from_json(spec_json)
    uplink, inbox = Uplink(sock, outbox), Inbox()
    notes = Notes(inbox.held)
    io = ChildIO(uplink, inbox, spec.beat_interval_ms, notes)
    io.start()
    try:
        termination = _settle_in(spec, name)
        app = _load(spec)
        _run_hooks(app, io, spec.hook_timeout_ms / 1000)
        if app.config.task_logs is not None and not spec.is_helper:
            io.listen_to_notes()
            capture.begin(notes, app.config.task_logs)
    except BaseException as error:
        uplink.send(wire.pack(wire.Kind.BROKEN, 0, _describe(error).encode("utf-8", "replace")))
        leave(EXIT_BROKEN)
    notebook = Notebook(spec.journal)
    runner = _runner(app, spec, inbox, uplink, io, notebook, notes)
    io.serve(runner)
    if isinstance(runner, run.Runner):
        termination.is_wanted = runner.is_being_stopped
    uplink.send(wire.pack(wire.Kind.READY, 0, _introduction(app, name, notebook)))
    runner.serve()
    _say_goodbye(runner, spec.goodbye_timeout_ms / 1000)


def rehearse() -> None:
    """Do once, before the fork, what every child does with its app. Pydantic builds its validators at their first use;
    children share the memory of those that exist when they are forked, and save the time."""
    app = Horsies(AppConfig.for_database_url("postgresql://localhost/rehearsal"))

    @app.task("rehearsal")
    def rehearsal(number: int) -> TaskResult[None, TaskError]:
        return TaskResult(ok=None)

    require_sound(app)


class Termination:
    """What SIGTERM does to a child (W-50a). Some platforms send it to every process when they stop a worker: the child
    goes on, because the worker lets its task finish. It ends if the worker wants that: if a task is being stopped. A
    process that a task has forked is not ours, and ends as any other: also by a signal that comes at once after the
    fork, which Python would forget if it had a handler there."""

    def __init__(self) -> None:
        self.is_wanted: Callable[[], bool] = bool  # never, until there are tasks
        self._mask = threading.local()

    def begin(self) -> None:
        signal.signal(signal.SIGTERM, self)
        os.register_at_fork(before=self._hold, after_in_parent=self._release, after_in_child=self._forked)

    def __call__(self, number: int, _frame: object) -> None:
        if self.is_wanted():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _hold(self) -> None:
        self._mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def _release(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask.before)

    def _forked(self) -> None:
        if signal.getsignal(signal.SIGTERM) is self:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._release()


def _settle_in(spec: wire.ChildSpec, name: str) -> Termination:
    """Turn the copy of the fork server into an independent process: names, paths, signals, streams."""
    termination = Termination()
    with contextlib.suppress(Exception):  # there may be no standard error
        faulthandler.enable()
    signal.signal(signal.SIGINT, _ignored)  # SIG_IGN would be inherited by programs that tasks start
    termination.begin()
    multiprocessing.current_process().name = name
    forkserver.name_process(name)
    sys.modules["__main__"] = types.ModuleType("__main__")  # otherwise multiprocessing would run the fork server's
    os.chdir(spec.cwd)
    sys.path[:] = spec.sys_path
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    logs.configure(spec.loglevel, spec.log_format)
    mark_log_records()
    return termination


def _load(spec: wire.ChildSpec) -> Horsies:
    app = locate.load_app(spec.app_locator)
    if spec.database_url is not None:
        # Tasks that send must use the database that the worker was given.
        app.config = app.config.model_copy(update={"broker": app.config.broker.elsewhere(spec.database_url)})
    app.make_current()
    app.suppress_sends(True)
    try:
        for entry in spec.imports:
            discovery.import_entry(entry)
        # The check imports every discovered module. It is the worker's own (W-03): the supervisor imports no tasks.
        require_sound(app)
    finally:
        app.suppress_sends(False)
    return app


def _run_hooks(app: Horsies, io: ChildIO, limit_s: float) -> None:
    for hook in app.get_child_process_start_hooks():
        name = f"{hook.__module__}.{getattr(hook, '__qualname__', hook)}"
        place = errors.SourceLocation.from_function(hook)
        late = errors.HorsiesError(f"the child start hook {name} took longer than {limit_s:g} s", location=place)
        io.limit(limit_s, late.format_rust_style())
        try:
            hook()
        except BaseException as error:
            problem = errors.HorsiesError(f"the child start hook {name} raised {type(error).__name__}: {error}")
            problem.location = errors.SourceLocation.of_exception(error) or place
            raise problem from error
        finally:
            io.unlimit()


def _runner(
    app: Horsies, spec: wire.ChildSpec, inbox: Inbox, uplink: Uplink, io: ChildIO, notebook: Notebook, notes: Notes
) -> run.Runner | helper.HookServer:
    if spec.is_helper:
        limit_s = spec.recovery_hook_timeout_ms / 1000
        return helper.HookServer(app.hooks, partial(build_plan, app), partial(prepared, app), inbox, uplink, limit_s)
    return run.Runner(app.tasks, inbox, uplink, spec.concurrency, notebook.note, io.is_late, notes)


def _introduction(app: Horsies, name: str, notebook: Notebook) -> bytes:
    tasks = sorted(app.tasks)
    info = {
        "pid": os.getpid(),
        "name": name,
        "rss_mb": round(run.Memory().rss_kb(0) / 1024, 1),
        "tasks": tasks,
        "async": [task for task in tasks if app.tasks[task].is_async],
        "journal": notebook.is_open,
        "traced": tracing.is_on(),
        "catalogue": catalogue.to_wire(catalogue.catalogue_of(app.tasks)),
        "hooks": [event.__name__ for event in hooks.EVENTS if app.hooks.has(event)],
    }
    return json.dumps(info).encode()


def _say_goodbye(runner: run.Runner | helper.HookServer, limit_s: float) -> NoReturn:
    """Let user code clean up, for a limited time. Threads that never end are not waited for."""
    with contextlib.suppress(RuntimeError):
        limit = threading.Timer(limit_s, leave, (0,))
        limit.daemon = True
        limit.start()
        runner.close()
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
    leave(0)


def _describe(error: BaseException) -> str:
    if isinstance(error, errors.HorsiesError):
        return error.format_rust_style()
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(lines[-TRACEBACK_LINES:])


def _ignored(_signal: int, _frame: object) -> None:
    """Ctrl-C is for the supervisor, which lets its children finish."""
