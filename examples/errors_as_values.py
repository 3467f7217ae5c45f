"""Errors are values: a task returns what went wrong, exceptions get a code, and nothing has to be caught.

Run it as `python examples/errors_as_values.py`.
"""

import asyncio
import os
from typing import Any

from horsies import (
    AppConfig,
    Err,
    Horsies,
    Ok,
    OperationalErrorCode,
    RetryPolicy,
    TaskError,
    TaskHandle,
    TaskResult,
    Worker,
)

app = Horsies(
    AppConfig.for_database_url(
        os.environ.get("DATABASE_URL", "embedded:.horsies/postgres"),
        exception_mapper={ZeroDivisionError: "DIVIDED_BY_ZERO"},
    )
)


@app.task("errors.withdraw")
def withdraw(balance: int, amount: int) -> TaskResult[int, TaskError]:
    """A mistake that belongs to the domain: returned, with a code and data of its own."""
    if amount > balance:
        error = TaskError(error_code="INSUFFICIENT_FUNDS", message="not enough money", data={"short": amount - balance})
        return TaskResult(err=error)
    return TaskResult(ok=balance - amount)


@app.task("errors.divide")
def divide(a: int, b: int) -> TaskResult[float, TaskError]:
    """An exception that leaves the function: the mapper gives it a code."""
    return TaskResult(ok=a / b)


@app.task("errors.explode")
def explode() -> TaskResult[None, TaskError]:
    """An exception that nobody mapped."""
    raise RuntimeError("boom")


@app.task(
    "errors.unlucky",
    retry_policy=RetryPolicy.fixed([1], auto_retry_for=["TRY_AGAIN"], jitter=False),
)
def unlucky() -> TaskResult[None, TaskError]:
    """Fails whenever it is tried: the policy gives it one retry, a second later."""
    return TaskResult(err=TaskError(error_code="TRY_AGAIN", message="still not"))


def tell(what: str, handle: TaskHandle[Any]) -> None:
    result = handle.get(timeout_ms=30_000)
    match result.err:
        case None:
            print(f"{what}: ok, {result.ok}")
        case TaskError(error_code=OperationalErrorCode.UNHANDLED_EXCEPTION, message=message):
            print(f"{what}: an exception nobody expected: {message}")
        case TaskError(error_code=code, message=message, data=data):
            print(f"{what}: {code}, {message}" + (f", {data}" if data else ""))


async def serve(handles: list[TaskHandle[Any]]) -> None:
    """Run a worker until all of these have ended."""
    worker = Worker(app)
    serving = asyncio.create_task(worker.run())
    await asyncio.gather(*(handle.get_async(timeout_ms=30_000) for handle in handles))
    worker.request_stop()
    await serving


def main() -> None:
    handles: dict[str, TaskHandle[Any]] = {
        "withdraw 30 of 100": withdraw.send(100, 30).unwrap(),
        "withdraw 130 of 100": withdraw.send(100, amount=130).unwrap(),
        "divide 1 by 0": divide.send(1, 0).unwrap(),
        "explode": explode.send().unwrap(),
        "unlucky": unlucky.send().unwrap(),
    }
    asyncio.run(serve(list(handles.values())))
    for what, handle in handles.items():
        tell(what, handle)
    info = handles["unlucky"].info(include_attempts=True).unwrap()
    print(f"unlucky was tried {len(info.attempts or []) if info else 0} times")

    match divide.send("one", 2):  # type: ignore[arg-type]  # a wrong argument is found before anything is sent
        case Ok(sent):
            print(f"sent as {sent.task_id}")
        case Err(error):
            print(f"not sent: {error.code}")
    app.get_broker().close()


if __name__ == "__main__":
    main()
