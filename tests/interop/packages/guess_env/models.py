"""What goes in and out."""

from openenv.core.env_server.types import Action, Observation, State


class GuessAction(Action):  # type: ignore[misc]
    number: int


class GuessObservation(Observation):  # type: ignore[misc]
    hint: str = ""


class GuessState(State):  # type: ignore[misc]
    tries: int = 0
