"""An environment for strangers' clients: steps, plain methods, tools, a reward and tasks."""

import time
from typing import Any

from rayfine_env import (
    Action,
    Environment,
    Observation,
    State,
    function,
    prompt,
    report,
    resource,
    reward,
    tool,
)

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(8)


class Move(Action):
    amount: int = 1
    sleep: float = 0.0


class Seen(Observation):
    total: int = 0


class Arena(Environment[Move, Seen, State]):
    """Counts to ten, for whoever comes by whichever door."""

    def __init__(self) -> None:
        self._state = State()
        self._total = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, start: int = 0) -> Seen:
        self._state = State(episode_id=episode_id)
        self._total = start
        return Seen(total=start)

    def step(self, action: Move) -> Seen:
        time.sleep(action.sleep)
        if action.amount == 13:
            raise ValueError("an unlucky number")
        self._state.step_count += 1
        self._total += action.amount
        note = {"lucky": True} if action.amount == 7 else {}
        return Seen(total=self._total, reward=1.0, done=self._total >= 10, metadata=note)

    @property
    def state(self) -> State:
        return self._state

    @tool
    def add(self, a: int, b: int = 1) -> int:
        """Add two numbers.

        Args:
            a: The first.
            b: The second.
        """
        return a + b

    @tool
    def total(self) -> dict[str, int]:
        """What has been counted so far."""
        return {"total": self._total}

    @tool
    def stumble(self) -> None:
        """Fail, as a tool may."""
        raise ValueError("it stumbled")

    @tool
    def look(self) -> bytes:
        """A picture."""
        return PICTURE

    @tool
    def wait(self, seconds: float) -> str:
        """Take one's time."""
        time.sleep(seconds)
        return "waited"

    @tool
    def climb(self, steps: int) -> str:
        """Report from every step."""
        for step in range(1, steps + 1):
            report(f"step {step}", progress=step, total=steps, data={"height": step})
        return "up"

    @resource("arena://rules", mime_type="text/markdown")
    def rules(self) -> str:
        """How it is played."""
        return "# Count to ten"

    @resource("arena://picture")
    def picture(self) -> bytes:
        return PICTURE

    @prompt
    def hint(self, style: str, count: int = 1) -> str:
        """What to say to a model.

        Args:
            style: In which manner.
        """
        return f"Count, {style}, {count} at a time."

    @reward
    def score(self) -> float:
        return self._total / 10

    @function
    def shout(self, text: str) -> str:
        return text.upper()

    def echo(self, value: Any) -> Any:
        """Say it again."""
        return value

    def list_splits(self) -> list[str]:
        return ["train", "held_out"]

    def list_tasks(self, split: str) -> list[dict[str, int]]:
        return [{"index": index} for index in range(3)]

    def num_tasks(self, split: str) -> int:
        return 3

    def get_task(self, split: str, index: int) -> dict[str, int]:
        return self.list_tasks(split)[index]

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, int]]:
        return self.list_tasks(split)[start:stop]
