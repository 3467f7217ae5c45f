"""What the tables of the two pages say about the converter is what it does: a snippet for each row."""

from __future__ import annotations

from horsies.migrate.findings import FindingKind, Library
from tests.each import each
from tests.migrate.support import converted, rows

TASK = "from celery import shared_task\n\n@shared_task{}\ndef add(a, b) -> int:\n    return a\n\n"
BOUND = "from celery import shared_task\n\n@shared_task(bind=True)\ndef add(self, a) -> int:\n    {}\n\n"
SETTING = "from celery import Celery\n\napp = Celery('x')\napp.conf.{} = {}\n"

# The first words of a row: source, and a part of what it becomes, if it becomes something.
CELERY: dict[str, tuple[str, str]] = {
    "broker (Redis": (
        "from celery import Celery\napp = Celery('x', broker='redis://', backend='redis://')\n",
        "Horsies(",
    ),
    '`Celery("shop")`': ("from celery import Celery\napp = Celery('shop')\n", "AppConfig.for_database_url("),
    "`@app.task`": ("from shop.app import app\n\n@app.task\ndef add(a):\n    pass\n", "def add(a) -> None:"),
    "`task.delay": (TASK.format("") + "add.delay(1, b=2)\n", "add.send_or_raise(1, b=2)"),
    "`task.apply_async(countdown": (
        TASK.format("") + "add.apply_async((1, 2), countdown=30)\n",
        "with_options(delay=30)",
    ),
    "`apply_async(expires": (TASK.format("") + "add.apply_async((1, 2), expires=30)\n", "timedelta(seconds=30)"),
    "`apply_async(queue": (TASK.format("") + "add.apply_async((1, 2), queue='mail')\n", "with_options(queue='mail')"),
    "`apply_async(priority": (TASK.format("") + "add.apply_async((1, 2), priority=3)\n", ""),
    "`AsyncResult.get()`": (TASK.format("") + "add.delay(1, 2).get(timeout=1.5)\n", ".result(timeout_ms=1_500)"),
    "`bind=True`": (BOUND.format("return self.request.id"), "return ctx.task_id"),
    "`current_task`": (
        "from celery import current_task\nfrom shop.app import app\n\n\ndef f():\n    return current_task.request.id\n",
        "",
    ),
    "signals": ("from celery.signals import task_prerun\n\n@task_prerun.connect\ndef f(**kw):\n    pass\n", ""),
    "`AsyncResult.revoke": (
        TASK.format("") + "r = add.delay(1, 2)\nr.revoke(terminate=True)\n",
        "include_running=True",
    ),
    "`autoretry_for": (TASK.format("(autoretry_for=(OSError,), retry_backoff=2)"), 'OSError: "OS_ERROR"'),
    "`self.retry": (
        BOUND.format("try:\n        return a\n    except OSError as e:\n        raise self.retry(exc=e)"),
        'auto_retry_for=["OS_ERROR"]',
    ),
    "`acks_late`": (TASK.format("(acks_late=True)"), 'auto_retry_for=["WORKER_CRASHED"]'),
    "`time_limit`": (TASK.format("(time_limit=60)"), "timeout_ms=60_000"),
    "`worker_concurrency`": (SETTING.format("worker_concurrency", 4), ""),
    "`rate_limit`": (TASK.format("(rate_limit='1/s')"), ""),
    "`chain`": (
        TASK.format("")
        + "from celery import chord\n\ndef f(xs):\n    return chord(add.s(x, 1) for x in xs)(add.s(2))\n",
        'map_node(node_id="add", over=from_node(elements), param="a")(b=1)',
    ),
    "`task.map": (TASK.format("") + "add.chunks([(1, 2)], 10)\n", ""),
    "beat": (
        TASK.format("").replace("shared_task\n\n@", "Celery, shared_task\nfrom celery.schedules import crontab\n\n@")
        + "app = Celery('x')\n"
        "app.conf.beat_schedule = {'a': {'task': 'shop.tasks.add', 'schedule': crontab(minute=5)}}\n",
        'CronSchedule.parse("5 * * * *")',
    ),
    "`worker_process_init`": (
        "from celery.signals import worker_process_init\n\n@worker_process_init.connect\ndef f(**kw):\n    pass\n",
        "",
    ),
    "Flower": ("", ""),
    "pickle": (TASK.format("(serializer='pickle')"), ""),
    "`task_always_eager`": (SETTING.format("task_always_eager", True), ""),
    "`@shared_task`": (TASK.format(""), "from shop.app import app"),
    "`task_routes`": (
        "from celery import Celery\napp = Celery('x')\napp.conf.task_routes = {'shop.tasks.a*': 'mail'}\n\n"
        "@app.task\ndef add():\n    pass\n",
        '@app.task(queue_name="mail")',
    ),
    "`autodiscover_tasks`": (
        "from celery import Celery\napp = Celery('x', include=['shop.mail'])\napp.autodiscover_tasks(['a'])\n",
        'app.discover_tasks(["shop.mail", "a.tasks"])',
    ),
    "`soft_time_limit`": (TASK.format("(soft_time_limit=5)"), "timeout_ms=5_000"),
    "`ignore_result=True`": (TASK.format("(ignore_result=True)"), "@app.task\n"),
    "`self.update_state": (
        BOUND.format("self.update_state(state='PROGRESS', meta={'current': 1, 'total': a})\n    return 1"),
        "ctx.progress(1, a)",
    ),
    "`task(1, b=2)`": (TASK.format("") + "x = add(1, b=2)\n", "x = add(1, b=2).unwrap()"),
    "`class MyTask(Task)`": ("from celery import Task\n\nclass MyTask(Task):\n    pass\n", ""),
    "`get_task_logger": (
        "from celery.utils.log import get_task_logger\nlog = get_task_logger(__name__)\n",
        "logging.getLogger(__name__)",
    ),
}
JOB = "from shop.app import app\n\n@app.task{}\ndef add(a, b) -> int:\n    return a\n\n"
PROCRASTINATE: dict[str, tuple[str, str]] = {
    "`App(connector": ("import procrastinate\napp = procrastinate.App(connector=None)\n", "Horsies("),
    "job": ("", ""),
    "`@app.task(name": (JOB.format('(name="add", queue="mail")'), '@app.task("add", queue_name="mail")'),
    "`task.defer(a=1)`": (JOB.format("") + "x = add.defer(a=1, b=2)\n", "add.send_or_raise(a=1, b=2)"),
    "`task.configure(schedule_in": (
        JOB.format("") + 'add.configure(schedule_in={"seconds": 30}).defer(a=1, b=2)\n',
        "with_options(delay=timedelta(seconds=30)).send_or_raise(",
    ),
    "`configure(queue": (JOB.format("") + 'add.configure(queue="q").defer(a=1, b=2)\n', 'with_options(queue="q")'),
    "`configure(priority": (JOB.format("") + "add.configure(priority=3).defer(a=1, b=2)\n", ""),
    "`pass_context": (
        "from shop.app import app\n\n"
        "@app.task(pass_context=True)\ndef add(context) -> int:\n    return context.job.attempts\n",
        "return context.attempt - 1",
    ),
    "middleware": (
        "from procrastinate import middleware\nfrom shop.app import app\n\n"
        "@app.task(middleware=middleware)\ndef f():\n    pass\n",
        "",
    ),
    "`task.batch_defer": (JOB.format("") + "add.batch_defer({'a': 1, 'b': 2})\n", "add.send_many([{'a': 1, 'b': 2}])"),
    "`queueing_lock`": (JOB.format('(queueing_lock="x")'), ""),
    "`lock`": (JOB.format("") + 'add.configure(lock="x").defer(a=1, b=2)\n', ""),
    "`RetryStrategy": (
        "from procrastinate import RetryStrategy\n"
        + JOB.format("(retry=RetryStrategy(max_attempts=3, exponential_wait=2, retry_exceptions={OSError}))"),
        'RetryPolicy.fixed([2, 4, 8], auto_retry_for=["OS_ERROR"], jitter=False)',
    ),
    "`@app.periodic": (
        "from procrastinate import App\napp = App(connector=None)\n\n"
        '@app.periodic(cron="*/5 * * * *")\n@app.task\ndef f(timestamp):\n    pass\n',
        "@app.task\ndef f() -> None:",
    ),
    "`procrastinate worker": ("", ""),
    "`app.run_worker_async": ("from shop.app import app\napp.run_worker_async()\n", ""),
    "`procrastinate schema": ("", ""),
    "`app.open()`": ("from shop.app import app\n\nwith app.open():\n    print(1)\n", "with nullcontext():"),
    "statuses": ("", ""),
    "`JobManager`": ("from shop.app import app\napp.job_manager.list_jobs()\n", ""),
    "`delete_jobs`": ("", ""),
    "`job_manager": ("from shop.app import app\napp.job_manager.get_stalled_jobs()\n", ""),
    "`import_paths`": (
        'from procrastinate import App\napp = App(connector=None, import_paths=["shop.mail"])\n',
        'app.discover_tasks(["shop.mail"])',
    ),
    "`InMemoryConnector`": (
        "from procrastinate.testing import InMemoryConnector\n\ndef f():\n    return InMemoryConnector()\n",
        "",
    ),
    "`task(a=1)`": (JOB.format("") + "x = add(a=1, b=2)\n", "x = add(a=1, b=2).unwrap()"),
}
CASES = [
    (library, start, *snippet)
    for library, snippets in ((Library.CELERY, CELERY), (Library.PROCRASTINATE, PROCRASTINATE))
    for start, snippet in snippets.items()
]
# These are said of every app and every result, and are no difference of the row.
USUAL = ("broker and result backend", "the connector is a URL")


@each(("library", "start", "source", "becomes"), CASES, ids=[f"{one[0]}-{one[1]}" for one in CASES])
def test_x42_the_converter_does_what_the_table_says(library: Library, start: str, source: str, becomes: str) -> None:
    [said] = [how for words, how in rows(library).items() if words.startswith(start)]
    text, done = converted(source, library, **({"app": ""} if "App(" in source or "Celery(" in source else {}))
    kinds = {
        finding.kind
        for finding in done.findings
        if finding.path == "shop/tasks.py" and not finding.what.startswith(USUAL)
    }
    expected = {"yes": set(), "–": set(), "yes, differs": {FindingKind.DIFFERS}, "by hand": {FindingKind.BY_HAND}}[said]
    assert kinds == expected, done.findings
    assert becomes in text
    assert (said in ("yes", "yes, differs")) == bool(becomes)


@each(("library", "snippets"), [(Library.CELERY, CELERY), (Library.PROCRASTINATE, PROCRASTINATE)])
def test_x42_every_row_has_its_snippet(library: Library, snippets: dict[str, tuple[str, str]]) -> None:
    for words in rows(library):
        assert sum(words.startswith(start) for start in snippets) == 1, words
    assert len(rows(library)) == len(snippets)
