"""The commands that run until they are told to stop: `horsies worker` turns its options into a `WorkerConfig` and runs
the worker (M-02, W-80), and `horsies scheduler` sends the scheduled tasks of an app (M-03, S-40).

The fork server is forked before the user's app and anything with threads is loaded, and after all modules of horsies,
because pages of memory that an import writes to are no longer shared.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from horsies.cli import database, output, reloading
from horsies.cli.options import DatabaseUrl, LogFormat, LogLevel, Module, parse_duration, parse_names
from horsies.core import errors, locate, logs
from horsies.core.app import Horsies
from horsies.core.child import forkserver
from horsies.core.child.wire import MOST_CHILDREN
from horsies.core.models.base import MOST
from horsies.core.models.recovery import WorkerRecoveryConfig
from horsies.core.worker import launcher, service
from horsies.core.worker.config import MOST_CLAIMED, MOST_HELD_BYTES, WorkerConfig
from horsies.core.worker.in_hand import MAX_HELD_BYTES
from horsies.dev.program import READY_VARIABLE, ready_signal

if TYPE_CHECKING:
    from horsies.core.worker.scheduler_process import SchedulerProcess

log = logging.getLogger("horsies.cli")

MetricsPort: TypeAlias = Annotated[
    int | None,
    typer.Option(min=0, max=65_535, show_default="off", help="Serve /metrics, /healthz and /readyz on this port."),
]
MetricsHost: TypeAlias = Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")]
Format: TypeAlias = Annotated[LogFormat, typer.Option(case_sensitive=False, help="text for people, json for programs.")]


def _recovery(meaning: str) -> Any:
    return typer.Option(parser=parse_duration, metavar="D", show_default="from config", help=meaning)


def worker(
    context: typer.Context,
    module: Module,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_CHILDREN, show_default="usable processors", help="Child processes that run tasks."
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, show_default="100", help="How many async tasks each child runs at a time."),
    ] = None,
    queues: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="Serve only these queues, separated by commas.")
    ] = None,
    max_claim_batch: Annotated[
        int, typer.Option(min=0, max=MOST_CLAIMED, help="Most tasks claimed from one queue in one pass; 0: automatic.")
    ] = 0,
    max_claim_per_worker: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_CLAIMED,
            help="Most tasks claimed but not started; 0: automatic. Other values turn off run-ahead.",
        ),
    ] = 0,
    run_ahead_ms: Annotated[
        int,
        typer.Option(
            min=0, max=1_000, help="Prepare about this much work for each child if tasks are very short; 0: never."
        ),
    ] = 20,
    max_held_bytes: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_HELD_BYTES, help="Bytes of arguments and results that may wait in the worker's own process."
        ),
    ] = MAX_HELD_BYTES,
    max_tasks_per_child: Annotated[
        int, typer.Option(min=0, max=MOST, help="Replace a child after this many tasks (at least 2); 0: never.")
    ] = 0,
    max_memory_per_child_mb: Annotated[
        int | None,
        typer.Option(min=1, max=MOST, help="Replace a child that uses more memory than this.", show_default="off"),
    ] = None,
    worker_recovery: Annotated[
        bool | None,
        typer.Option(
            "--worker-recovery/--no-worker-recovery",
            show_default="from config",
            help="Recover the tasks of dead workers. Each of the next four options turns this on.",
        ),
    ] = None,
    heartbeat_interval: Annotated[timedelta | None, _recovery("Time between heartbeats of this worker.")] = None,
    sweep_interval: Annotated[timedelta | None, _recovery("Time between sweeps.")] = None,
    sweep_threshold: Annotated[timedelta | None, _recovery("Silence after which a worker counts as dead.")] = None,
    recovery_delay: Annotated[timedelta | None, _recovery("Delay before a recovered task may run again.")] = None,
    with_scheduler: Annotated[
        bool,
        typer.Option("--with-scheduler", help="Also send the app's scheduled tasks; safe on any number of workers."),
    ] = False,
    scheduler_if_any: Annotated[
        bool, typer.Option("--scheduler-if-any", hidden=True, help="The same if the app has schedules (horsies dev).")
    ] = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    shutdown_grace: Annotated[
        timedelta | None,
        typer.Option(
            parser=parse_duration,
            metavar="D",
            show_default="none: wait for them",
            help="When stopping, interrupt tasks that still run after this time.",
        ),
    ] = None,
    loglevel: Annotated[
        LogLevel, typer.Option(case_sensitive=False, help="The log level of the worker and its children.")
    ] = LogLevel.INFO,
    log_format: Format = LogFormat.TEXT,
    reload: Annotated[
        bool,
        typer.Option("--reload", help="For development: when a file of the app changes, go on with the new code."),
    ] = False,
    reload_dir: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIRECTORY",
            resolve_path=True,
            help="With --reload: watch this one too; can be given several times.",
        ),
    ] = None,
    reload_include: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="With --reload: also files like '*.toml'; can be given several times."),
    ] = None,
    database_url: DatabaseUrl = None,
) -> int:
    """Run a worker that runs an app's tasks.

    After SIGTERM or Ctrl-C the worker takes no more tasks, lets running tasks finish, and exits with 0. A second signal
    interrupts running tasks. Durations D are seconds, or a number with s, m or h: 300, 30s, 5m, 2h.
    """
    logs.configure(loglevel, log_format)
    is_watched = READY_VARIABLE in os.environ  # by `reloading`
    say_ready = ready_signal()
    if reload and not is_watched:
        return reloading.run(
            context.obj.words,
            directories=reload_dir or (),
            patterns=reload_include or (),
            overlap=not metrics_port,
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the worker itself handles SIGTERM
    try:
        forked = forkserver.fork_server() if context.obj.is_program else None
        if forked is not None:
            log.debug("fork server started")
        if metrics_port is not None:
            refuse_without_metrics()
        app = locate.load_app(module)
        chosen = database.choose(database_url, app.config.broker)
        schedule = app.config.schedule
        config = WorkerConfig(
            app_locator=module,
            dsn=chosen.url if database_url is not None else None,
            queues=parse_names(queues),
            processes=processes,
            concurrency=concurrency,
            max_claim_batch=max_claim_batch,
            max_claim_per_worker=max_claim_per_worker,
            run_ahead_ms=run_ahead_ms,
            max_held_bytes=max_held_bytes,
            max_tasks_per_child=max_tasks_per_child,
            max_memory_per_child_mb=max_memory_per_child_mb,
            metrics_port=metrics_port,
            metrics_host=metrics_host,
            with_scheduler=with_scheduler or (scheduler_if_any and schedule is not None and schedule.enabled),
            shutdown_grace_ms=None if shutdown_grace is None else int(shutdown_grace.total_seconds() * 1000),
            loglevel=loglevel.value,
            log_format=log_format.value,
            **recovery_settings(
                app.config.worker_recovery,
                worker_recovery,
                heartbeat_interval=heartbeat_interval,
                sweep_interval=sweep_interval,
                sweep_threshold=sweep_threshold,
                recovery_delay=recovery_delay,
            ),
        )
        return serve(app, config, chosen, say_ready, forked)
    except errors.HorsiesError as problem:
        complain(problem, log_format)
        return 1
    except KeyboardInterrupt:
        log.info("stopped before the worker was ready")
        return 0


def scheduler(
    module: Module,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    loglevel: Annotated[
        LogLevel, typer.Option(case_sensitive=False, help="The log level of the scheduler.")
    ] = LogLevel.INFO,
    log_format: Format = LogFormat.TEXT,
    database_url: DatabaseUrl = None,
) -> int:
    """Run a scheduler that sends an app's tasks by the clock.

    One scheduler is enough. Several may run, on one machine or on many; each run is still sent once. After SIGTERM or
    Ctrl-C the scheduler finishes its current check and exits with 0.
    """
    from horsies.core.checks import require_sound
    from horsies.core.scheduler.payloads import require_schedule
    from horsies.core.worker import scheduler_process

    logs.configure(loglevel, log_format)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # until the scheduler itself handles SIGTERM
    try:
        if metrics_port is not None:
            refuse_without_metrics()
        app = locate.load_app(module)
        chosen = database.choose(database_url, app.config.broker)
        database.use(app, chosen)
        require_schedule(app.config)
        require_sound(app)
        log.info(chosen.opening_sentence())
        with asyncio.Runner(loop_factory=fastest_loop()) as runner:
            return runner.run(_run(scheduler_process.SchedulerProcess(app), app, metrics_host, metrics_port))
    except errors.HorsiesError as problem:
        complain(problem, log_format)
        return 1
    except KeyboardInterrupt:
        log.info("stopped before the scheduler was ready")
        return 0


def serve(
    app: Horsies,
    config: WorkerConfig,
    chosen: database.Database,
    on_ready: Callable[[], None],
    forked: forkserver.ForkedServer | None,
) -> int:
    """Run the worker to its end and return the exit code."""
    log.info(chosen.opening_sentence())
    if log.isEnabledFor(logging.DEBUG):
        app.config.log_config(log)
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        return runner.run(service.Worker(app, config, on_ready, launcher.Launcher(forked)).run(install_signals=True))


def refuse_without_metrics() -> None:
    """Fail early if the extra for metrics is missing."""
    from horsies.core.monitoring import http

    http.encoder()


def fastest_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop for the supervisor, if it is installed; children keep the standard loop, for which their tasks were
    written."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def recovery_settings(
    of_app: WorkerRecoveryConfig, is_wanted: bool | None, **given: timedelta | None
) -> dict[str, Any]:
    """Fields of `WorkerConfig`. A duration turns worker recovery on, unless --no-worker-recovery is given
    (R-06, R-07)."""
    durations = {name: value for name, value in given.items() if value is not None}
    if is_wanted is None:
        return dict(durations)
    return {"worker_recovery": WorkerRecoveryConfig(**{**dict(of_app), **durations, "enabled": is_wanted})}


def complain(problem: errors.HorsiesError, log_format: LogFormat) -> None:
    """Report an error as a JSON line for programs, or rendered for people."""
    if log_format is LogFormat.JSON:
        code = None if problem.code is None else str(problem.code)
        log.error("%s", problem.format_rust_style(), extra={"horsies": {"error_code": code}})
    else:
        output.show_error(problem)


async def _run(process: "SchedulerProcess", app: Horsies, host: str, port: int | None) -> int:
    from horsies.core.worker import scheduler_process

    async with scheduler_process.exposed(process, app.config, host, port):
        return await process.run(install_signals=True)
