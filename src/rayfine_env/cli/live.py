"""A run as it goes: a panel on a terminal, else a line now and then."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .output import Output
from .plot import histogram

if TYPE_CHECKING:
    from rich.table import Table

    from ..rollout.progress import Progress

_QUIET_SECONDS = 10.0


@contextmanager
def live_view(output: Output, progress: "Progress") -> Iterator[Callable[[], None]]:
    """Gives what to call after each episode."""
    if not output.aside.is_terminal:
        yield _Lines(output, progress).moved
        return
    from rich.live import Live

    class View:
        def __rich__(self) -> "Table":
            return table(progress)

    with Live(View(), console=output.aside, refresh_per_second=4):
        yield lambda: None


class _Lines:
    def __init__(self, output: Output, progress: "Progress") -> None:
        self._output = output
        self._progress = progress
        self._count = 0
        self._told = time.monotonic()

    def moved(self) -> None:
        progress = self._progress
        self._count += 1
        todo = progress.planned - progress.before
        now = time.monotonic()
        tenth = self._count % max(1, todo // 10) == 0
        if tenth or self._count == todo or now - self._told > _QUIET_SECONDS:
            self._told = now
            failed = f", {progress.failed} failed" if progress.failed else ""
            done = progress.before + self._count
            rate = f"{progress.rate:.3g}/s"
            self._output.note(f"episodes {done}/{progress.planned}{failed}, {rate}")


def table(progress: "Progress") -> "Table":
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    done = progress.before + progress.done
    made = Table.grid(padding=(0, 2))
    made.add_row("episodes", ProgressBar(max(progress.planned, 1), done, width=40))
    made.add_row("", f"{done} of {progress.planned}, {progress.running} running")
    causes = ", ".join(f"{n} by {cause}" for cause, n in progress.causes.most_common())
    made.add_row("failed", f"{progress.failed}" + (f" ({causes})" if causes else ""))
    left = progress.remaining
    pace = f"{progress.rate:.1f} a second"
    made.add_row("rate", pace + (f", {_clock(left)} to go" if left is not None else ""))
    low, high = progress.percentile(0.5), progress.percentile(0.95)
    if low is not None and high is not None:
        made.add_row("step", f"p50 {low * 1000:.2f} ms, p95 {high * 1000:.2f} ms")
    if progress.rewards:
        recent = list(progress.rewards[-4096:])
        bars = histogram(recent, 40)
        made.add_row("reward", f"{min(recent):.3g} {bars} {max(recent):.3g}")
    return made


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
