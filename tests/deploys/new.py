"""The app after a deploy: one task is new, one is gone, and one takes other arguments."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from tests.deploys.shop import make_app, work

app = make_app()


class Person(BaseModel):
    first: str
    last: str = ""


def greet_v1(name: str) -> dict[str, Any]:
    first, _, last = name.partition(" ")
    return {"person": Person(first=first, last=last)}


@app.task("common")
def common(number: int, seconds: float = 0.0, note: str = "") -> int:
    work(seconds)
    return number


@app.task("added")
def added(number: int, seconds: float = 0.0) -> int:
    work(seconds)
    return number


@app.task("greet", accepts=[greet_v1], on_undecodable="leave")
def greet(person: Person) -> str:
    return f"hello {person.first} {person.last}".strip()
