"""Prometheus figures of one server."""

import functools
import time
from collections.abc import Iterator
from typing import Protocol

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Totals:
    """What all calls of a server have used."""

    def __init__(self) -> None:
        self.calls = 0
        self.cpu = 0.0
        self.wall = 0.0

    def add(self, calls: int, cpu: float, wall: float) -> "Totals":
        self.calls += calls
        self.cpu += cpu
        self.wall += wall
        return self


class Source(Protocol):
    @property
    def open_sessions(self) -> int: ...
    def totals(self) -> Totals: ...


class Metrics(Collector):
    """Counts what the front answers itself, and reads off what the sessions have used."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._registry = prometheus.CollectorRegistry()
        requests = prometheus.Counter(
            "rayfine_requests", "Requests answered.", ["op", "outcome"], registry=self._registry
        )
        seconds = prometheus.Histogram(
            "rayfine_request_seconds", "Time to answer.", ["op"], registry=self._registry
        )
        self._registry.register(self)
        # labels() costs more than the counting, and there are few of them.
        self._requests = functools.cache(requests.labels)
        self._seconds = functools.cache(seconds.labels)

    def collect(self) -> Iterator[Metric]:
        totals = self._source.totals()
        open_sessions = self._source.open_sessions
        yield GaugeMetricFamily("rayfine_sessions", "Open sessions.", open_sessions)
        yield CounterMetricFamily("rayfine_calls", "Calls into author code.", totals.calls)
        yield CounterMetricFamily("rayfine_cpu_seconds", "CPU time of these calls.", totals.cpu)
        yield CounterMetricFamily("rayfine_wall_seconds", "Time in these calls.", totals.wall)

    def observe(self, op: str, outcome: str, started: float) -> None:
        self._requests(op, outcome).inc()
        self._seconds(op).observe(time.perf_counter() - started)

    def render(self) -> bytes:
        return prometheus.generate_latest(self._registry)
