"""Encodes metric families in the format of Prometheus. It needs the extra `metrics`: see `http.encoder`."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import exposition as client
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from horsies.core.monitoring.metrics import Buckets, Family
from horsies.core.text import visible


def encode(families: Iterable[Family], accept: str = "") -> tuple[bytes, str]:
    """The text for a client that accepts these types, and its content type."""
    encoder, content_type = client.choose_encoder(accept)
    return encoder(_Collected(families)), content_type


class _Collected:
    """What prometheus_client calls a registry."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return map(_converted, self._families)


def _converted(family: Family) -> Metric:
    metric, samples = family
    if metric.kind == "histogram":
        return _histogram(family)
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    found: CounterMetricFamily | GaugeMetricFamily = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in samples:
        assert not isinstance(value, Buckets)
        found.add_metric(_clean(labels), value)
    return found


def _histogram(family: Family) -> Metric:
    found = HistogramMetricFamily(family.metric.name, family.metric.help, labels=family.metric.labels)
    for labels, value in family.samples:
        assert isinstance(value, Buckets)
        buckets = [(_bound(bound), float(count)) for bound, count in value.counts]
        found.add_metric(_clean(labels), buckets, value.sum)
    return found


def _clean(labels: Sequence[str]) -> list[str]:
    """Names of queues and tasks come from rows, and people look at metrics too. Backslashes are doubled, so that two
    names never become one: equal series would spoil the whole answer."""
    return [visible(label.replace("\\", "\\\\")) for label in labels]


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else repr(float(bound))
