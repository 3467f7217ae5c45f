"""Where a trace context is stored, who reads it back, and that nobody pays for it who does not use it."""

from __future__ import annotations

import subprocess
import sys

from horsies.core.models.sending import MOST_CHARS, carrier_to_json, trace_in, with_trace
from horsies.core.models.tasks import RetryPolicy, TaskOptions
from horsies.core.worker.in_hand import parse_options
from tests.each import each

CARRIER = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
TRACE = carrier_to_json(CARRIER)
OPTIONS = TaskOptions(RetryPolicy.fixed([1], auto_retry_for=["FLAKY"]), 5_000).to_json()


@each("options", [None, OPTIONS, "{}"])
def test_a_context_goes_in_and_comes_out_and_the_options_are_as_before(options: str | None) -> None:
    stored = with_trace(options, TRACE)
    assert trace_in(stored) == TRACE
    read = parse_options(stored)
    assert read.trace == TRACE
    assert (read.retry_policy, read.timeout_ms) == (
        TaskOptions.from_json(options).retry_policy,
        TaskOptions.from_json(options).timeout_ms,
    )


def test_no_context_changes_nothing() -> None:
    assert with_trace(OPTIONS, None) is OPTIONS and with_trace(None, None) is None
    assert trace_in(OPTIONS) is None and trace_in(None) is None


@each(
    "stored",
    [
        '{"trace":1}',
        '{"trace":{"traceparent":1}}',
        '{"trace":[]}',
        '{"trace":{}}',
        '{"trace":null}',
        '["trace"]',
        '{"trace":',
        '{"trace":{"x":"' + "y" * MOST_CHARS + '"}}',
    ],
)
def test_a_row_that_says_nonsense_has_no_context(stored: str) -> None:
    assert trace_in(stored) is None
    assert parse_options(stored).trace is None, "and its task still runs"


def test_what_is_too_large_is_cut_down_to_the_trace() -> None:
    assert carrier_to_json({**CARRIER, "baggage": "x" * MOST_CHARS}) == TRACE
    assert carrier_to_json({"traceparent": "x" * MOST_CHARS}) is None


def test_without_a_tracer_provider_the_context_still_goes_on() -> None:
    """A child that only has the API makes no spans, but what its task sends belongs to the trace."""
    code = (
        "import json, opentelemetry.trace as trace\n"
        "from horsies.core import tracing\n"
        f"about = json.dumps(['id', 'default', 1, {CARRIER!r}]).encode()\n"
        "with tracing.running('t', about):\n"
        "    inside = trace.get_current_span().get_span_context()\n"
        "    with tracing.starting('flow', 'id') as span:\n"
        "        print(f'{inside.trace_id:032x}', json.loads(span.trace)['traceparent'])\n"
        "assert not trace.get_current_span().get_span_context().is_valid\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    trace_id = CARRIER["traceparent"].split("-")[1]
    assert done.stdout.split()[:1] == [trace_id] and done.stdout.split()[1].startswith(f"00-{trace_id}-"), done.stderr


def test_nobody_imports_opentelemetry_or_the_metrics_library_for_who_does_not_use_them() -> None:
    """Which is what makes tracing free: whether it is on is asked of the modules that are loaded."""
    code = (
        "import sys, horsies, horsies.cli.main, horsies.core.worker.service, horsies.core.child.main\n"
        "from horsies.core import tracing\n"
        "assert not tracing.is_on()\n"
        "assert tracing.getting('task', 'x') is tracing.getting('workflow', 'y')\n"
        "with tracing.getting('task', 'x') as span:\n"
        "    assert span.trace is None\n"
        "tracing.flush(1)\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry', 'prometheus_client'))])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
