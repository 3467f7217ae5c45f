"""What would quietly mean something else after the conversion is left alone, or said (X-42). Every source here is of a
kind that projects have: imports inside functions, handlers that retry only sometimes, handles in lists, options in
variables."""

from __future__ import annotations

import pytest

from horsies.migrate.findings import FindingKind, Library
from tests.each import each
from tests.migrate.support import about, converted, converted_alone

HEAD = "from celery import shared_task\nfrom shop.app import app\n\n\n"
ADD = f"{HEAD}@shared_task\ndef add(a) -> int:\n    return a\n\n\n"
HANDLER = HEAD + "@shared_task(bind=True)\ndef f(self) -> None:\n    try:\n        work()\n    except {}:\n        {}\n"


def by_hand(source: str, **others: str) -> tuple[str, list[str]]:
    text, done = converted(source, **others)
    return text, [said for said in about(done) if said.startswith("by hand")]


def test_x42_a_direct_call_whose_value_nobody_wants_still_raises() -> None:
    text, done = converted(f"{ADD}def g():\n    add(1)\n")
    assert "    add(1).unwrap()\n" in text and any("called as a function" in said for said in about(done))


@each(
    "body",
    [
        "def add(a):\n        return a\n    return add(1)",
        "from shop.other import add\n    return add(1)",
        "match x:\n        case {'a': add}:\n            return add(1)",
        "try:\n        work()\n    except OSError as add:\n        return add(1)",
    ],
)
def test_x42_a_name_of_a_function_hides_the_task(body: str) -> None:
    text, _ = converted(f"{ADD}def g(x):\n    {body}\n", other="def add(a):\n    return a\n")
    assert "unwrap" not in text


def test_x42_imports_inside_functions_hold_for_their_function() -> None:
    source = (
        "def g():\n    from shop.mail import send\n    send.delay(1)\n\n\ndef h():\n    from shop.other import send\n"
    )
    text, left = by_hand(
        f"{source}    return send(1)\n",
        mail=ADD.replace("def add", "def send"),
        other="def send(a):\n    return a\n",
    )
    assert "    send.send_or_raise(1)\n" in text and "    return send(1)\n" in text and left == []


def test_x42_names_that_only_type_checkers_or_one_function_import_are_imported_for_all() -> None:
    source = "from typing import TYPE_CHECKING\nfrom celery import shared_task\n\nif TYPE_CHECKING:\n"
    text, _ = converted(f"{source}    from typing import Any\n\n\n@shared_task\ndef f(a):\n    return a\n")
    assert "from typing import Any as horsies_Any\n" in text and "-> horsies_Any:" in text
    app = "from celery import Celery\n\n\ndef where():\n    import os\n    return os\n\n\napp = Celery('x')\n"
    _, done = converted(ADD, app=app)
    [after] = [one.after for one in done.changed if one.path == "shop/app.py"]
    assert after.startswith(b"import os\n")


def test_x42_a_name_that_hides_a_handle_is_no_handle_and_closures_see_theirs() -> None:
    source = f"{ADD}r = add.delay(1)\n\n\ndef g(r):\n    return r.id, r.get()\n\n\ndef h():\n    q = add.delay(1)\n"
    text, _ = converted(f"{source}\n    def inner():\n        return q.get()\n\n    return inner\n")
    assert "return r.id, r.get()" in text and "return q.result()" in text


@each(
    "body",
    [
        "rs = [add.delay(i) for i in range(3)]\n    return [r.get() for r in rs]",
        "return add.delay(1)",
        "r = add.delay(1)\n    return show(r)",
        "show.r = add.delay(1)",
        "show(add.apply_async((1,), countdown=3))",
    ],
)
def test_x42_a_handle_that_is_passed_on_is_said(body: str) -> None:
    _, done = converted(f"{ADD}def g():\n    {body}\n")
    assert [said for said in about(done) if "the handle of a send is passed on" in said], done.findings


@each("body", ["r = add.delay(1)\n    return r.id", "add.delay(1)", "later(lambda: add.delay(1))"])
def test_x42_a_handle_that_stays_where_it_is_is_not_said(body: str) -> None:
    assert about(converted(f"{ADD}def g():\n    {body}\n")[1]) == []


@each("use", ["ALL = [add]", "x = list(map(add, [1]))", "x = add.run(1)", "x = map(add.s, [1])"])
def test_x42_a_task_that_is_used_as_a_value_is_said(use: str) -> None:
    assert len(by_hand(f"{ADD}{use}\n")[1]) == 1


@each(
    ("caught", "body", "says"),
    [
        ("KeyError as e", "if e.args:\n            raise self.retry(exc=e)\n        raise", "in some cases only"),
        ("KeyError as e", "raise self.retry(exc=ValueError(e))", "its own arguments"),
        ("KeyError as e", "raise self.retry(exc=e, max_retries=MOST)", "its own arguments"),
        (
            "KeyError as e",
            "raise self.retry(exc=e, countdown=5)\n"
            "    except OSError as e:\n        raise self.retry(exc=e, countdown=9)",
            "its own arguments, times or delays",
        ),
        ("lazy.Timeout as e", "raise self.retry(exc=e)", "not known as a class"),
    ],
)
def test_x42_a_retry_that_a_policy_cannot_say_is_left(caught: str, body: str, says: str) -> None:
    text, left = by_hand(HANDLER.format(caught, body))
    assert len(left) == 1 and says in left[0], left
    assert "ctx.retry(" in text and "lazy.Timeout:" not in text


@each(
    ("caught", "body", "becomes"),
    [
        ("OSError as e", "raise self.retry(exc=e)", "OSError:\n        raise\n"),
        ("OSError as e", "self.retry(exc=e, countdown=5)", "OSError:\n        raise\n"),
        ("OSError as e", "raise self.retry(countdown=5)", "OSError as e:\n        raise\n"),  # nothing used it before
        (
            "OSError  as  e",
            "work()\n        raise self.retry(exc=e) from e",
            "OSError:\n        work()\n        raise\n",
        ),
        ("(OSError) as e", "raise self.retry(exc=e)", "(OSError):\n        raise\n"),
        ("(OSError,  # as e\n      KeyError\n) as e", "raise self.retry(exc=e)", "KeyError\n):\n        raise\n"),
        ("OSError \\\n  as e ", "raise self.retry(exc=e)  # as e", "OSError :\n        raise  # as e\n"),
        ("OSError", "raise self.retry()", "OSError:\n        raise\n"),
        (
            "OSError as e",
            "print(e)\n        raise self.retry(exc=e)",
            "OSError as e:\n        print(e)\n        raise\n",
        ),
        ("OSError as e", "del e\n        raise self.retry()", "OSError as e:\n"),
        ("OSError as e", "if work():\n            print(f'{e}')\n        raise self.retry(exc=e)", "OSError as e:\n"),
        (
            "OSError as e",
            "raise self.retry(exc=e)\n    except KeyError as e:\n        print(e)",
            "OSError:\n        raise\n    except KeyError as e:\n        print(e)\n",
        ),
    ],
)
def test_x42_the_name_of_an_exception_that_only_the_retry_used_is_gone(caught: str, body: str, becomes: str) -> None:
    text, left = by_hand(HANDLER.format(caught, body))
    assert becomes in text and left == []
    compile(text, "shop/tasks.py", "exec")
    crlf, _ = by_hand(HANDLER.format(caught, body).replace("\n", "\r\n"))
    assert becomes.replace("\n", "\r\n") in crlf


def test_x42_the_name_of_an_exception_stays_where_a_function_inside_uses_it_or_the_retry_is_left() -> None:
    source = HANDLER.format("OSError as e", "show()\n        raise self.retry(exc=e)")
    text, _ = by_hand(source.replace("    try:\n", "    def show():\n        print(e)\n\n    try:\n"))
    assert "    except OSError as e:\n        show()\n        raise\n" in text
    text, left = by_hand(HANDLER.format("OSError as e", "raise self.retry(exc=e, queue='slow')"))
    assert "    except OSError as e:\n" in text and len(left) == 1


def test_x42_a_handler_of_celerys_exceptions_is_said_also_beside_what_was_changed() -> None:
    body = "try:\n            self.retry(exc=e)\n        except MaxRetriesExceededError:\n            pass"
    source = "from celery.exceptions import MaxRetriesExceededError\n" + HANDLER.format("KeyError as e", body)
    _, left = by_hand(source)
    assert any("MaxRetriesExceededError is still used" in said for said in left)


@each(
    "option",
    ["default_retry_delay=X", "max_retries=X", "retry_backoff=X", "acks_late=X", "queue=X", "autoretry_for=X",
     "autoretry_for=(*X, OSError)"],
)  # fmt: skip
def test_x42_an_option_in_a_variable_is_said(option: str) -> None:
    _, left = by_hand(f"X = 1\n{HEAD}@shared_task({option})\ndef f() -> None:\n    pass\n")
    assert len(left) == 1, left


def test_x42_a_time_limit_in_a_variable_is_kept() -> None:
    text, left = by_hand(f"X = 1\n{HEAD}@shared_task(time_limit=X)\ndef f() -> None:\n    pass\n")
    assert "timeout_ms=int(1000 * (X))" in text and left == []
    _, done = converted(f"X = 1\n{HEAD}@shared_task(time_limit=X)\ndef f() -> None:\n    pass\n")
    assert any("it must not be None any more" in said for said in about(done))


@each(("limit", "becomes"), [("None", ".result()"), ("X", ".result(timeout_ms=int(1000 * (X)))")])
def test_x42_no_limit_stays_no_limit_and_a_limit_that_may_be_none_is_said(limit: str, becomes: str) -> None:
    text, done = converted(f"X = 1\n{ADD}add.delay(1).get(timeout={limit})\n")
    assert f"add.send_or_raise(1){becomes}\n" in text
    assert any(said.startswith("differs: X as a number") for said in about(done)) == (limit == "X")


@each(("limit", "is_said"), [("timeout=3", True), ("timeout=None", False), ("", False)])
def test_x42_a_limit_of_a_group_that_holds_for_each_of_its_results_is_said(limit: str, is_said: bool) -> None:
    source = ADD.replace("shared_task\n", "group, shared_task\n", 1)
    text, done = converted(f"{source}def g():\n    r = group(add.s(1), add.s(2))()\n    return r.get({limit})\n")
    assert "one.result(" in text
    assert any("holds for each result of the group" in said for said in about(done)) == is_said


@each("args", ["'ab'", "{1, 2}", "{'a': 1}", "5"])
def test_x42_arguments_that_are_no_list_stay(args: str) -> None:
    text, left = by_hand(f"{ADD}add.apply_async(args={args})\n")
    assert f"add.apply_async(args={args})\n" in text
    assert len(left) == 1 and "no list of arguments" in left[0]


@pytest.mark.parametrize(
    ("given", "becomes", "instead"),
    [
        ("args=x", "*x", "*(... or ())"),
        ("x", "*x", "*(... or ())"),
        ("args=x.get('a')", "*x.get('a')", "*(... or ())"),
        ("args=x and [1]", "*x and [1]", "*(... or ())"),
        ("kwargs=x", "**x", "**(... or {})"),
        ("(), x", "**x", "**(... or {})"),
    ],
)
def test_x42_arguments_that_may_be_none_when_they_are_unpacked_are_said(given: str, becomes: str, instead: str) -> None:
    text, done = converted(f"{ADD}def g(x):\n    add.apply_async({given})\n")
    assert f"add.send_or_raise({becomes})\n" in text
    [said] = [one for one in done.findings if one.path == "shop/tasks.py"]
    assert said.kind is FindingKind.DIFFERS and "must not be None any more" in said.what
    assert said.instead.startswith(instead)


@pytest.mark.parametrize(
    "given",
    [
        "args=[x]", "args=(x,)", "(x,)", "args=None", "args=[*x]", "args=[y for y in x]", "args=[1] + x",
        "args=x or ()", "kwargs={'a': x}", "kwargs=None", "kwargs={y: 1 for y in x}", "kwargs=x or {}",
    ],
)  # fmt: skip
def test_x42_arguments_that_cannot_be_none_are_not_said(given: str) -> None:
    assert about(converted(f"{ADD}def g(x):\n    add.apply_async({given})\n")[1]) == []


@each("delay", ["0", "0.2", "1.5", "200000"])
def test_x42_a_delay_of_a_retry_that_is_not_kept_is_said(delay: str) -> None:
    option = f"autoretry_for=(OSError,), default_retry_delay={delay}"
    _, done = converted(f"{HEAD}@shared_task({option})\ndef f() -> None:\n    pass\n")
    assert any(f"the delay was {delay}" in said for said in about(done)), done.findings
    source = "from procrastinate import RetryStrategy\nfrom shop.app import app\n\n\n"
    source += f"@app.task(retry=RetryStrategy(max_attempts=2, wait={delay}))\ndef f() -> None:\n    pass\n"
    _, done = converted(source, Library.PROCRASTINATE)
    assert any(f"the delay was {delay}" in said for said in about(done)), done.findings


def test_x42_delays_that_grow_beyond_a_day_are_said_and_those_that_are_kept_are_not() -> None:
    body = "raise self.retry(exc=e, countdown=2 ** self.request.retries, max_retries={})"
    _, done = converted(HANDLER.format("KeyError as e", body.format(20)))
    assert any("the delay was 131072" in said for said in about(done))
    _, done = converted(HANDLER.format("KeyError as e", body.format(17)))
    assert not any("the delay was" in said for said in about(done))


def test_x42_other_options_of_a_retry_are_said() -> None:
    option = "autoretry_for=(OSError,), retry_kwargs={'countdown': 5, 'queue': 'slow'}"
    _, left = by_hand(f"{HEAD}@shared_task({option})\ndef f() -> None:\n    pass\n")
    assert left == ["by hand: queue of retry_kwargs was left out"]


@each(("value", "is_said"), [("False", True), ("X", True), ("True", False)])
def test_x42_beat_in_local_time_is_said(value: str, is_said: bool) -> None:
    app = f"from celery import Celery\n\nX = 1\napp = Celery('x')\napp.conf.enable_utc = {value}\n"
    _, done = converted(ADD, app=app)
    assert any("the setting enable_utc was taken out" in one.what for one in done.by_hand) == is_said


def test_x42_a_setting_for_all_tasks_in_a_variable_is_said() -> None:
    app = "from celery import Celery\n\nX = 1\napp = Celery('x')\napp.conf.task_time_limit = X\n"
    text, done = converted(ADD, app=app)
    assert "timeout_ms" not in text
    assert any("the setting task_time_limit was taken out" in one.what for one in done.by_hand)


def test_x42_a_queue_is_kept_and_said_where_the_app_is_only_named() -> None:
    source = ADD.replace("@shared_task", "@shared_task(queue='mail')")
    text, done = converted_alone(f"{source}add.apply_async((1,), queue='slow')\n")
    assert '@app.task(queue_name="mail")' in text and "with_options(queue='slow')" in text
    assert [one.what.split()[2] for one in done.by_hand] == ["'mail'", "'slow'"]
    assert all("custom_queues" in one.instead for one in done.by_hand)
    source = "from shop.app import app\n\n\n@app.task(queue='mail')\ndef f() -> None:\n    pass\n\n\n"
    source = f"# procrastinate\n{source}f.configure(queue='slow').defer()\n"
    text, done = converted_alone(source, Library.PROCRASTINATE)
    assert '@app.task(queue_name="mail")' in text and "with_options(queue='slow')" in text
    assert [one.what.split()[2] for one in done.by_hand] == ["'mail'", "'slow'"]


PERIODIC = (
    "from shop.app import app\n\n\n@app.periodic(cron='* * * * *')\n@app.task\ndef f(timestamp: int) -> None: ...\n"
)


def test_x42_a_periodic_task_stays_periodic_where_the_app_is_only_named() -> None:
    text, done = converted_alone(PERIODIC, Library.PROCRASTINATE)
    assert text == PERIODIC
    [left] = done.by_hand
    assert left.line == 4 and "the schedule of f belongs to the app" in left.what


@each(
    ("use", "is_kept"),
    [
        ("f.defer(timestamp=1)", True),
        ("f.configure(schedule_in={'seconds': 1}).defer(timestamp=1)", True),
        ("f(1)", True),
        ("f.batch_defer({'timestamp': 1})", True),
        ("f.configure(schedule_in={'seconds': 1}).defer()", False),
        ("f.defer()", False),
    ],
)
def test_x42_a_time_that_somebody_gives_a_periodic_task_is_not_taken_out(use: str, is_kept: bool) -> None:
    text, done = converted(f"{PERIODIC}\n\ndef use() -> None:\n    {use}\n", Library.PROCRASTINATE)
    assert ("def f(timestamp: int)" in text) == is_kept
    assert any("is given no timestamp any more" in said for said in about(done)) == is_kept


def test_x42_sends_with_odd_names_and_comments() -> None:
    text, left = by_hand(f"{ADD}add.apply_async(kwargs={{'class': 1}})\nadd.apply_async((1,),  # one\n  countdown=3)\n")
    assert "add.send_or_raise(**{'class': 1})" in text and left == []
    assert "comments inside are gone" in str(converted(f"{ADD}add.apply_async((1,),  # one\n  countdown=3)\n")[1])


def test_x42_a_context_whose_name_is_taken_again_is_said() -> None:
    source = f"{HEAD}@shared_task(bind=True)\ndef f(self, xs) -> None:\n    print([self.name for self in xs])\n"
    assert any("is another thing" in said for said in by_hand(source)[1])


def test_x42_the_same_holds_for_procrastinate() -> None:
    source = (
        "from shop.app import app\n\n\n@app.periodic(cron='0 1 * * *')  # at one\n@app.task(pass_context=True)\n"
        "def f(context) -> None:\n    def inner(context):\n        return context.job.id\n\n\nmany = [f.defer, f]\n"
    )
    text, done = converted(source, Library.PROCRASTINATE)
    assert "return context.job.id" in text
    said = about(done)
    assert "by hand: .defer of a task, as a value" in said and "by hand: the task f is used as a value" in said
    assert "differs: comments beside it are gone" in said
