"""The app before a deploy."""

from __future__ import annotations

from tests.deploys.shop import make_app, work

app = make_app()


@app.task("common")
def common(number: int, seconds: float = 0.0) -> int:
    work(seconds)
    return number


@app.task("retired")
def retired(number: int) -> int:
    return number


@app.task("greet", on_undecodable="leave")
def greet(name: str) -> str:
    return f"hello {name}"
