"""Prometheus figures of one server."""

import time
from collections.abc import Callable

import prometheus_client as prometheus


class Metrics:
    """Counts requests by op and outcome, and times them."""

    def __init__(self, open_sessions: Callable[[], int]) -> None:
        self.registry = prometheus.CollectorRegistry()
        self._requests = prometheus.Counter(
            "rayfine_requests", "Requests answered.", ["op", "outcome"], registry=self.registry
        )
        self._seconds = prometheus.Histogram(
            "rayfine_request_seconds", "Time to answer.", ["op"], registry=self.registry
        )
        gauge = prometheus.Gauge("rayfine_sessions", "Open sessions.", registry=self.registry)
        gauge.set_function(open_sessions)

    def observe(self, op: str, outcome: str, started: float) -> None:
        self._requests.labels(op, outcome).inc()
        self._seconds.labels(op).observe(time.perf_counter() - started)

    def render(self) -> bytes:
        return prometheus.generate_latest(self.registry)
