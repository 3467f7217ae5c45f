"""How the tests look at a process through its port: as a probe does, and as Prometheus does."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def fetch(port: int, path: str, **headers: str) -> tuple[int, str]:
    """Status and body. An AssertionError if nobody listens, so that `eventually` goes on."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=15)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return response.status, response.read().decode()
    except OSError as problem:
        raise AssertionError(f"{path}: {problem}") from problem
    finally:
        connection.close()


def readiness(port: int) -> tuple[int, dict[str, Any]]:
    """What /readyz says: the status and the reasons."""
    status, body = fetch(port, "/readyz")
    reasons: dict[str, Any] = json.loads(body)["reasons"]
    return status, reasons


def series_of(text: str) -> Series:
    """Every sample of an exposition by its name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(port: int) -> Series:
    status, text = fetch(port, "/metrics")
    assert status == 200, text
    return series_of(text)


def value(series: Series, name: str, **labels: str) -> float | None:
    return series.get((name, tuple(sorted(labels.items()))))
