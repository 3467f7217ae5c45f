"""docs/troubleshooting.md: every symptom has a command that tells, the commands and codes exist, and what `explain` can
say is there. That the command lines are understood is checked for all pages by tests/deploy/test_site.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from horsies import (
    ErrorCode,
    RetryPolicy,
    TaskAttemptOutcome,
    TaskSendErrorCode,
    TaskStatus,
    WorkflowStatus,
    WorkflowTaskStatus,
)
from horsies.core.models.app import AppConfig
from horsies.core.models.codes import BUILTIN_CODE_REGISTRY, RETRY_ELIGIBLE
from horsies.core.models.monitoring.cluster import Why
from tests.deploy.command_lines import spoken_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
PARTS = re.split(r"^## (.*)$", PAGE, flags=re.MULTILINE)[1:]
SYMPTOMS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))
ENVIRONMENT = {"DATABASE_URL"}


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_a_symptom_has_a_command_that_tells(symptom: str) -> None:
    text = SYMPTOMS[symptom]
    assert text.startswith("\n\n```sh\n"), "the command comes first"
    assert spoken_of(text) or "curl" in text
    answers = text.partition("```\n")[2]
    assert len(answers.split()) >= 30, "and then what it says, why, and what to do"


def test_every_symptom_is_listed_on_top() -> None:
    listed = re.findall(r"^- \[(.*)\]\(#", PAGE, re.MULTILINE)
    assert listed == list(SYMPTOMS) and len(listed) >= 15


def test_every_reason_of_explain_is_there_with_its_mend() -> None:
    rows = re.findall(r"^\| (`[A-Z].*?) \|", SYMPTOMS["My task does not run"], re.MULTILINE)
    assert {code for row in rows for code in re.findall(r"`(\w+)`", row)} == {str(why) for why in Why}


def test_codes_and_states_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`([A-Z][A-Z_]+[A-Z])`", PAGE))
    states = {str(state) for family in (TaskStatus, WorkflowStatus, WorkflowTaskStatus) for state in family}
    codes = {*BUILTIN_CODE_REGISTRY, *map(str, Why), *(code.value for code in TaskSendErrorCode)}
    known = {*codes, *states, *map(str, TaskAttemptOutcome), *ENVIRONMENT, "SIGABRT"}
    assert len(named) >= 30 and named - known == set()
    assert set(re.findall(r"HRS-\d{3}", PAGE)) <= {code.value for code in ErrorCode}


def test_every_code_of_a_send_is_there() -> None:
    section = SYMPTOMS["A send fails, or hangs"]
    assert [code.value for code in TaskSendErrorCode if f"`{code.value}`" not in section] == []


def test_the_codes_that_cause_a_retry_are_those_of_the_library() -> None:
    [row] = re.findall(r"^\| the code never causes a retry .*$", SYMPTOMS["It is not retried"], re.MULTILINE)
    assert set(re.findall(r"`([A-Z_]+)`", row)) == RETRY_ELIGIBLE
    assert RetryPolicy.fixed([5, 30], auto_retry_for=sorted(RETRY_ELIGIBLE)).max_retries == 2


def test_defaults_that_the_page_names_are_those_of_the_models() -> None:
    config = AppConfig.for_database_url("postgresql://localhost/shop")
    assert f"`pool_timeout` ({config.broker.pool_timeout} s)" in PAGE
    assert config.recovery.terminal_record_retention_hours == 30 * 24
    assert config.resilience.notify_poll_interval_ms == 5_000


def test_metrics_and_settings_that_the_page_names_exist() -> None:
    metrics = (ROOT / "docs/metrics.md").read_text()  # a test compares that page with the code
    named = set(re.findall(r"horsies_(?:worker|database|queue)_\w+", PAGE))
    assert len(named) >= 4 and [name for name in named if f"`{name}`" not in metrics] == []
    settings = (ROOT / "docs/configuration.md").read_text()
    words = re.findall(r"`([a-z]+_[a-z_]*(?:ms|hours|timeout|size|overflow|cap|concurrency|missed|url))[`=]", PAGE)
    assert len(set(words)) >= 8
    assert [word for word in words if f"`{word}`" not in settings and word != "timeout_ms"] == []
