"""Dashboard, alert rules and the page about metrics name only what the code exposes, and the page all of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from horsies.core.monitoring import catalogue
from tests.each import each

ROOT = Path(__file__).resolve().parents[2]
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
SCRAPING = ROOT / "deploy" / "prometheus" / "prometheus.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "horsies.json"
PAGE = ROOT / "docs" / "metrics.md"

SERIES = {name: metric for metric in catalogue.metrics() for name in metric.series()}
NAME = re.compile(r"\bhorsies_[a-z_]+\b")
SELECTOR = re.compile(r"\b(horsies_[a-z_]+)\{([^}]*)\}")
LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)")
GROUPING = re.compile(r"\b(?:by|on|without)\s*\(([^)]*)\)")
FROM_PROMETHEUS = {"le", "instance", "job", "part"}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in json.loads(DASHBOARD.read_text())["templating"]["list"]:
        if isinstance(variable["query"], dict):
            yield variable["name"], variable["query"]["query"]


@each(("where", "expression"), list(expressions()))
def test_queries_use_metrics_and_labels_that_exist(where: str, expression: str) -> None:
    names = NAME.findall(expression)
    assert names and set(names) <= SERIES.keys(), where
    for name, selector in SELECTOR.findall(expression):
        assert set(LABEL.findall(selector)) <= set(SERIES[name].labels) | FROM_PROMETHEUS, where
    known = {label for name in names for label in SERIES[name].labels} | FROM_PROMETHEUS
    for grouping in GROUPING.findall(expression):
        assert {label.strip() for label in grouping.split(",")} <= known, where
    for opening, closing in ("()", "{}", "[]"):
        assert expression.count(opening) == expression.count(closing), where


@each(("where", "expression"), list(expressions()))
def test_counters_are_rated_and_gauges_are_not(where: str, expression: str) -> None:
    for name in set(NAME.findall(expression)):
        is_gauge = SERIES[name].kind == "gauge"
        rated = re.search(rf"\b(?:rate|increase)\({name}\b", expression)
        assert (rated is None) == is_gauge, f"{where}: {name}"


def test_every_alert_says_what_to_do_and_how_bad_it_is() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 15
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"] and rule["annotations"]["description"], rule["alert"]
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}, rule["alert"]
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s")), rule["alert"]
        used = set(re.findall(r"\$labels\.([a-z_]+)", json.dumps(rule["annotations"])))
        kept = {label.strip() for by in GROUPING.findall(rule["expr"]) for label in by.split(",")}
        is_plain = not GROUPING.search(rule["expr"]) and not re.search(r"\b(?:sum|max|min)\(", rule["expr"])
        assert used <= (kept | ({"instance"} if is_plain else set())), rule["alert"]


def test_commands_that_alerts_name_exist() -> None:
    from horsies.cli.main import COMMANDS

    named = set(re.findall(r"`horsies ([a-z-]+)", ALERTS.read_text()))
    assert named and named <= COMMANDS.keys()


def test_panels_do_not_lie_on_each_other() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        own = {(place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])}
        assert not own & cells and place["x"] + place["w"] <= 24, panel["title"]
        cells |= own
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_every_metric_of_the_catalogue_is_shown_or_alerted_on() -> None:
    shown = {SERIES[name].name for _, expression in expressions() for name in NAME.findall(expression)}
    left_out = {metric.name for metric in catalogue.metrics()} - shown
    assert left_out == {
        "horsies_queue_estimated",
        "horsies_reading_age_seconds",
        "horsies_schedule_next_run_timestamp_seconds",
        "horsies_worker_info",
        "horsies_worker_sweeps_total",
        "horsies_workers_longest_silence_seconds",
    }


def test_prometheus_is_told_the_rules_and_where_to_look() -> None:
    config = yaml.safe_load(SCRAPING.read_text())
    assert config["rule_files"] == [ALERTS.name]
    targets = {target for job in config["scrape_configs"] for one in job["static_configs"] for target in one["targets"]}
    assert {"localhost:9462", "localhost:9463", "localhost:9464"} <= targets


def test_the_page_lists_every_metric_as_the_catalogue_has_it_and_no_other() -> None:
    page = PAGE.read_text()
    for metric in catalogue.metrics():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        assert f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |" in page, metric.name
    named = {name for name in NAME.findall(page) if not name.endswith("_")}  # not "those that begin with …_"
    assert named <= SERIES.keys() | {metric.name for metric in catalogue.metrics()}
