"""An environment that fails at nothing that its schema allows."""

from typing import Any, Literal

from rayfine_env import Action, Environment, Observation, State, reward, tool


class Press(Action):
    button: Literal["red", "green"] = "red"
    hard: bool = False


class Shown(Observation):
    presses: int = 0


class Tidy(Environment[Press, Shown, State]):
    def __init__(self) -> None:
        self._presses = 0

    def reset(self, seed: int | None = None) -> Shown:
        self._presses = 0
        return Shown()

    def step(self, action: Press) -> Shown:
        self._presses += 1
        return Shown(presses=self._presses, reward=float(action.hard))

    @tool
    def repeat(self, text: str, times: Literal[1, 2, 3] = 1) -> str:
        """Say it again."""
        return text * times

    @tool
    def sketch(self) -> bytes:
        """A drawing."""
        return bytes(8)

    @reward
    def score(self) -> float:
        return 0.5

    def anything(self, value: Any = None, more: dict[str, list[int]] | None = None) -> list[Any]:
        return [value, more]
