"""Queues with priorities and limits: mail goes before reports, and never more than two mails are on their way at once.

Run it as `python examples/queues_and_limits.py`. The limits hold for all workers together, however many there are: the
database counts.
"""

import asyncio
import os
import time

from horsies import AppConfig, CustomQueueConfig, Horsies, QueueMode, TaskError, TaskResult, Worker, WorkerConfig

app = Horsies(
    AppConfig.for_database_url(
        os.environ.get("DATABASE_URL", "embedded:.horsies/postgres"),
        queue_mode=QueueMode.CUSTOM,
        custom_queues=[
            CustomQueueConfig(name="mail", priority=1, max_concurrency=2),
            CustomQueueConfig(name="reports", priority=50, max_concurrency=1),
        ],
    )
)

Span = tuple[float, float]  # from when to when a task ran


def work(seconds: float) -> Span:
    began = time.time()
    time.sleep(seconds)
    return began, time.time()


@app.task("queues.send_mail", queue_name="mail")
def send_mail(to: str) -> TaskResult[Span, TaskError]:
    return TaskResult(ok=work(0.1))


@app.task("queues.write_report", queue_name="reports")
def write_report(month: int) -> TaskResult[Span, TaskError]:
    return TaskResult(ok=work(0.1))


def most_at_once(spans: list[Span]) -> int:
    return max(sum(began <= moment < ended for began, ended in spans) for moment, _ in spans)


async def main() -> None:
    reports = [(await write_report.send_async(month)).unwrap() for month in range(1, 4)]
    mails = [(await send_mail.send_async(f"user{number}@example.com")).unwrap() for number in range(8)]
    worker = Worker(app, WorkerConfig(processes=4))
    serving = asyncio.create_task(worker.run())
    mail_spans = [(await handle.get_async()).unwrap() for handle in mails]
    report_spans = [(await handle.get_async()).unwrap() for handle in reports]
    worker.request_stop()
    await serving
    print(f"mails: {len(mail_spans)} sent, at most {most_at_once(mail_spans)} at a time")
    print(f"reports: {len(report_spans)} written, at most {most_at_once(report_spans)} at a time")
    await app.get_broker().close_async()


if __name__ == "__main__":
    asyncio.run(main())
