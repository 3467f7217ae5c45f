"""Figures, by the hour and by the day."""

from celery import chord, group

from shop.bank import note
from shop.celery import app


@app.task
def heartbeat():
    note("heartbeats", "beat")


@app.task(name="reports.turnover")
def turnover(country, day):
    """What was sold in a country."""
    return len(country) * day


@app.task(name="reports.sum")
def add_up(amounts, label="total"):
    return f"{label}: {sum(amounts)}"


@app.task(name="reports.daily", queue="reports", expires=3600)
def daily(what):
    return f"report about {what}"


def all_countries(countries, day):
    """A chord: one task for each country, then their sum."""
    return chord((turnover.s(country, day) for country in countries), add_up.s(label="all"))()


def some_countries(day):
    result = group(turnover.s("de", day), turnover.s("france", day)).apply_async()
    return result.get(timeout=30)
