"""Rules every test runs under: repeatable random cases, promise counts, no silent skip in CI."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings

_NO_ENGINE = "no Docker engine answers; as root on Debian, `make docker-engine` starts one"

# No deadline: a slow machine is not a failure.
settings.register_profile("house", derandomize=True, deadline=None)
settings.load_profile("house")


@pytest.fixture(scope="session", autouse=True)
def run_directory() -> Iterator[None]:
    """Unix socket paths must be short, and nobody else's instances are in sight."""
    with tempfile.TemporaryDirectory(prefix="rf-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAYFINE_RUN_DIR", folder)
        yield


@pytest.fixture(scope="session")
def promise_count() -> Callable[[int, int], int]:
    """`promise_count(small, full)`: how often to try a promise in this run."""
    full_scale = os.environ.get("RAYFINE_PROMISE_SCALE") == "full"
    return lambda small, full: full if full_scale else small


def _engine_answers() -> bool:
    try:
        return subprocess.run(["docker", "version"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without an engine its tests are left out, and the run says so."""
    marked = [item for item in items if item.get_closest_marker("docker")]
    for item in marked:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))  # the first of them builds the images
    if marked and not _engine_answers():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=_NO_ENGINE))


def forbidden_skips(config: pytest.Config) -> list[pytest.TestReport]:
    """The skips of a CI run; xdist's workers report to the controller, which alone decides."""
    if os.environ.get("CI") != "true" or hasattr(config, "workerinput"):
        return []
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return list(reporter.stats.get("skipped", [])) if reporter else []


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.exitstatus == pytest.ExitCode.OK and forbidden_skips(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    reasons = [report.longrepr for report in terminalreporter.stats.get("skipped", [])]
    if left_out := [reason for reason in reasons if _NO_ENGINE in str(reason)]:
        terminalreporter.line(f"{len(left_out)} tests of containers left out: {_NO_ENGINE}")
    if skipped := forbidden_skips(config):
        terminalreporter.section("skipped, but CI must run every test", red=True)
        for report in skipped:
            terminalreporter.line(f"{report.nodeid}: {report.longreprtext}")
