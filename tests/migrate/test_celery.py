"""Celery as people write it: names in disguise, retries in every form, canvases, and what can only be reported."""

from __future__ import annotations

from horsies.migrate.conversion import Given, convert
from horsies.migrate.findings import Library
from horsies.migrate.retries import Retries, code_of
from tests.each import each
from tests.migrate.support import about, converted

TASKS = """\
from celery import chain, chord, group, shared_task


@shared_task
def a(x, y=1) -> int:
    return 1


@shared_task
def b(result, z) -> int:
    return 1


"""


@each(
    ("imports", "decorator"),
    [
        ("from celery import shared_task as job", "@job"),
        ("import celery", "@celery.shared_task()"),
        ("import celery as c", "@c.shared_task(name='x')"),
        ("from shop.app import app as celery_app", "@celery_app.task"),
        ("from .app import app as celery_app", "@celery_app.task()"),
        ("from shop import app as module", "@module.app.task"),
        ("import shop.app", "@shop.app.app.task"),
        ("from shop.passed_on import application", "@application.task"),
        ("from celery import current_app", "@current_app.task"),
    ],
)
def test_x42_a_task_is_found_under_every_name(imports: str, decorator: str) -> None:
    source = f"{imports}\n\n\n{decorator}\ndef f(x):\n    pass\n\n\nf.delay(1)\n"
    text, done = converted(source, passed_on="from shop.app import app as application\n")
    assert "def f(x) -> None:" in text and "f.send_or_raise(1)" in text and "celery import" not in text
    assert done.by_hand == []
    compile(text, "shop/tasks.py", "exec")


@each(
    ("options", "policy"),
    [
        ("autoretry_for=(OSError,)", 'fixed([180, 180, 180], auto_retry_for=["OS_ERROR"], jitter=False)'),
        (
            "autoretry_for=[Exception], max_retries=1",
            'fixed([180], auto_retry_for=["UNHANDLED_EXCEPTION"], jitter=False)',
        ),
        (
            "autoretry_for=(OSError,), retry_kwargs={'max_retries': 2, 'countdown': 7}",
            'fixed([7, 7], auto_retry_for=["OS_ERROR"], jitter=False)',
        ),
        (  # retry_kwargs are asked before the option, unless they say None
            "autoretry_for=(OSError,), max_retries=5, retry_kwargs={'max_retries': 2}",
            'fixed([180, 180], auto_retry_for=["OS_ERROR"], jitter=False)',
        ),
        (
            "autoretry_for=(OSError,), max_retries=1, retry_kwargs={'max_retries': None, 'countdown': 7}",
            'fixed([7], auto_retry_for=["OS_ERROR"], jitter=False)',
        ),
        (
            "autoretry_for=(OSError,), retry_backoff=True, retry_jitter=False",
            'exponential(1, max_retries=3, auto_retry_for=["OS_ERROR"], jitter=False)',
        ),
        (  # the factor is a whole number, of at least one
            "autoretry_for=(OSError,), retry_backoff=2.7, retry_jitter=False",
            'exponential(2, max_retries=3, auto_retry_for=["OS_ERROR"], jitter=False)',
        ),
        (
            "autoretry_for=(OSError,), retry_backoff=300, retry_jitter=False",
            'fixed([300, 600, 600], auto_retry_for=["OS_ERROR"], jitter=False)',
        ),
        ("max_retries=3", ""),
        ("autoretry_for=(OSError,), max_retries=0", ""),
    ],
)
def test_x42_retries_keep_their_times(options: str, policy: str) -> None:
    text, _ = converted(f"from celery import shared_task\n\n\n@shared_task({options})\ndef f() -> None:\n    pass\n")
    assert f"retry_policy=RetryPolicy.{policy}" in text if policy else "retry_policy" not in text
    compile(text, "shop/tasks.py", "exec")


def test_x42_there_are_at_most_twenty_retries_and_codes_are_valid() -> None:
    _, done = converted(
        "from celery import shared_task\n\n\n@shared_task(autoretry_for=(OSError,), max_retries=None)\n"
        "def f() -> None:\n    pass\n"
    )
    assert "differs: there are at most 20 retries" in about(done)
    assert [
        code_of(name) for name in ("requests.ConnectionError", "TaskTimeout", "_Odd", "HTTPError", "\u00c4rger")
    ] == [
        "CONNECTION_ERROR",
        "TASK_TIMEOUT_RAISED",
        "ODD",
        "HTTP_ERROR",
        "RGER",
    ]
    assert str([7] * 20) in Retries(["OSError"], 99, 7).policy("RetryPolicy")


@each(
    ("statement", "becomes"),
    [
        ("chain(a.s(1), b.s(2))()", ["a_node = a.node(", 'b.node(node_id="b")(result=from_node(a_node), z=2)']),
        ("return (a.s(1) | b.s(2)).delay()", ["output=b_node", "return app.workflow("]),
        ("chain(a.si(1), b.si(1, 2)).apply_async()", ['b.node(node_id="b", waits_for=[a_node])(result=1, z=2)']),
        (
            "r = (a.s(1) | a.s()).delay().get(timeout=5)",
            ["a_node_2", "start().unwrap().get(timeout_ms=5_000).unwrap()"],
        ),
        ("chord([a.s(1), a.s(2)])(b.s(3))", ["elements=[1, 2]", "result=from_node(each_a), z=3"]),
        ("chord((a.s(1, y=v) for v in range(3) if v), b.s(z=1))()", ["[v for v in range(3) if v]", 'param="y")(x=1)']),
        ("(group(a.s(v) for v in vs) | b.s(1))()", ["elements=list(vs)"]),
        ("group(a.s(v) for v in vs)()", ["a.send_many([a.prepare(v) for v in vs]).unwrap()"]),
        ("group([a.s(1), b.s(2, 3)]).delay()", ["[a.send_or_raise(1), b.send_or_raise(2, 3)]"]),
    ],
)
def test_x42_what_is_started_where_it_is_written_becomes_a_workflow(statement: str, becomes: list[str]) -> None:
    text, done = converted(f"{TASKS}def start(vs):\n    {statement}\n")
    for part in becomes:
        assert part in text
    assert done.by_hand == [] and "celery import" not in text
    compile(text, "shop/tasks.py", "exec")


@each(
    "statement",
    [
        "s = a.s(1)",
        "print(chain(a.s(1), b.s(2))())",
        "chord([a.s(1), b.s(2, 3)])(b.s(3))",
        "chord((a.s(v, v) for v in vs), b.s(1))()",
        "chain(a.s(1), unknown)()",
        "chain(*vs)()",
        "a.s(1).set(queue='x').delay()",
        "if vs: chain(a.s(1), b.s(2))()",
    ],
)
def test_x42_another_canvas_is_reported(statement: str) -> None:
    text, done = converted(f"{TASKS}def start(vs):\n    {statement}\n")
    assert {finding.line for finding in done.by_hand} == {15}, done.by_hand
    compile(text, "shop/tasks.py", "exec")


@each(
    ("source", "says"),
    [
        ("from celery import *\n", "from celery import *"),
        ("from celery import Task\n\n\nclass T(Task):\n    pass\n", "the task class T"),
        (
            "from shop.app import app\n\n\nclass C:\n    @app.task\n    def f(self):\n        pass\n",
            "a class or a method",
        ),
        ("from shop.app import app\n\n\n@app.task\n@staticmethod\ndef f():\n    pass\n", "another decorator"),
        ("from shop.app import app\n\nO = {}\n\n\n@app.task(**O)\ndef f():\n    pass\n", "not written here"),
        ("from shop.app import app\n\n\n@app.task\ndef f():\n    yield 1\n", "a generator"),
        ("from shop.app import app\n\n\ndef g():\n    @app.task\n    def f():\n        pass\n", "inside a function"),
        ("from celery import Celery\n\n\ndef make():\n    return Celery('x')\n", "not assigned to a name of a module"),
        ("from shop.app import app\n\nprint(app.conf.timezone)\n", "app.conf is still used"),
        ("from shop.app import app\n\napp.send_task('x')\n", "send_task by name"),
        ("from shop.app import app\n\n\n@app.on_after_configure.connect\ndef f(sender, **kw):\n    pass\n", "on_after"),
        ("try:\n    from celery import shared_task\nexcept ImportError:\n    shared_task = None\n", "inside a block"),
        (
            "from celery.exceptions import Ignore\n\n\ndef f():\n    raise Ignore\n",
            "celery.exceptions.Ignore is still used",
        ),
        (
            "from celery import shared_task\n\n\n"
            "@shared_task(bind=True)\ndef f(self) -> None:\n    raise self.retry()\n",
            "self.retry outside of a handler",
        ),
    ],
)
def test_x42_what_cannot_be_changed_is_said_with_its_place(source: str, says: str) -> None:
    text, done = converted(source)
    assert any(says in finding.what for finding in done.by_hand), done.findings
    assert all(0 < finding.line <= source.count("\n") and finding.instead for finding in done.by_hand)
    compile(text, "shop/tasks.py", "exec")


def test_x42_without_its_app_a_shared_task_stays_and_the_app_can_be_named() -> None:
    source = b"from celery import shared_task\n\n@shared_task\ndef f():\n    pass\n\nf.delay()\n"
    given = [Given("t.py", "t", source)]
    done = convert(Library.CELERY, given)
    [left] = done.by_hand
    assert done.changed == [] and "--app" in left.instead
    done = convert(Library.CELERY, given, "shop.main:queue")
    assert b"from shop.main import queue\n" in done.changed[0].after and b"@queue.task\n" in done.changed[0].after


def test_x42_signals_and_several_apps_are_said() -> None:
    text = (
        "from celery import Celery\nfrom celery.signals import task_failure\n\na = Celery('a')\nb = Celery('b')\n\n\n"
        "def hear(**_): ...\n\n\ntask_failure.connect(hear)\n"
    )
    found = [one.what for one in convert(Library.CELERY, [Given("a.py", "a", text.encode())]).by_hand]
    assert "the signal task_failure" in found
    assert sum("is one of 2 apps" in what for what in found) == 2


def test_x42_a_circle_of_imports_is_seen() -> None:
    app = "from celery import Celery\nfrom shop import tasks\n\napp = Celery('x')\n"
    _, done = converted("from celery import shared_task\n\n\n@shared_task\ndef f():\n    pass\n", app=app)
    assert any("imports shop.tasks" in finding.what for finding in done.by_hand)


def test_x42_settings_that_are_taken_out_are_said() -> None:
    app = """\
from celery import Celery
from celery.schedules import crontab, solar

app = Celery("x", include=["shop.tasks"])
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.task_acks_late = True
app.conf["result_expires"] = 60
app.conf.update({"worker_max_tasks_per_child": 5, "beat_schedule": {
    "both days": {"task": "shop.tasks.f", "schedule": crontab(day_of_week=1, day_of_month=1)},
    "sun": {"task": "shop.tasks.f", "schedule": solar("sunset", 0, 0)},
    "half": {"task": "shop.tasks.f", "schedule": 0.5},
    "lost": {"task": "nowhere", "schedule": 60.0},
    "off": {"task": "shop.tasks.f", "schedule": 60.0, "enabled": False, "options": {"expires": 5, "headers": {}}},
}})
"""
    text, done = converted("from celery import shared_task\n\n\n@shared_task\ndef f() -> None:\n    pass\n", app=app)
    said = " ".join(about(done, "shop/app.py"))
    for part in (
        "settings from elsewhere",
        "result_expires",
        "max_tasks_per_child",
        "'both days': Celery wants the day of the month and the weekday",
        "'sun': only crontab(), timedelta() and a number of seconds",
        "'half': it is no whole number of seconds",
        "'nowhere', which is not among these files",
        "'enabled' of the beat entry 'off' was left out",
        "the option expires of the beat entry 'off' was left out",
        "the option headers of the beat entry 'off' was left out",
    ):
        assert part in said, part
    assert 'auto_retry_for=["WORKER_CRASHED"]' in text
    after = next(one.after for one in done.changed if one.path == "shop/app.py")
    assert b"app.conf" not in after and b"IntervalSchedule(minutes=1)" in after


def test_x42_typing_that_was_off_is_said() -> None:
    source = "from celery import shared_task\n\n\n@shared_task(typing={})\ndef f(x) -> None:\n    pass\n"
    _, done = converted(source.format(False))
    assert any("typing=False of f" in one for one in about(done, "shop/tasks.py"))
    _, done = converted(source.format(True))
    assert not any("typing" in one for one in about(done, "shop/tasks.py"))


def test_x42_code_inside_f_strings_is_converted_where_it_is() -> None:
    source = (
        "from celery import shared_task\n\n\n@shared_task(bind=True)\ndef f(self, x) -> str:\n"
        '    a = f"\u00e9{x} {self.request.id}" f\'{f"{f.delay(3)}"}\'\n'
        '    return f"""\n{x}\n   {self.request.retries} {f.delay(1)!r:>{x}}\n"""\n'
    )
    text, done = converted(source)
    assert 'f"\u00e9{x} {ctx.task_id}" f\'{f"{f.send_or_raise(3)}"}\'' in text
    assert "   {ctx.attempt - 1} {f.send_or_raise(1)!r:>{x}}\n" in text
    assert done.by_hand == []
