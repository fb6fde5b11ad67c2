"""Large observations: 50 kB of text, or a frame of 84×84×3 bytes."""

from typing import Any, Literal

import numpy

from rayfine_env import Action, Environment, State, StepResult


class Look(Action):
    kind: Literal["text", "frame"]


class Heavy(Environment[Look, Any, State]):
    def reset(self) -> dict[str, Any]:
        self._seen: dict[str, Any] = {
            "text": "a word, and another; " * 2381,
            "frame": numpy.zeros((84, 84, 3), numpy.uint8),
        }
        return {}

    def step(self, action: Look) -> StepResult[Any]:
        return StepResult({action.kind: self._seen[action.kind]}, 1.0)
