"""Echoes what it is told; the longer the message, the larger the reward."""

from rayfine_env import Action, Environment, Observation, State

READY = "Echo environment ready!"


class EchoAction(Action):
    message: str


class EchoObservation(Observation):
    echoed_message: str
    message_length: int = 0


class EchoEnvironment(Environment[EchoAction, EchoObservation, State]):
    """Echoes what it is told; the longer the message, the larger the reward."""

    def __init__(self) -> None:
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> EchoObservation:
        self._state = State(episode_id=episode_id)
        return EchoObservation(echoed_message=READY)

    def step(self, action: EchoAction) -> EchoObservation:
        self._state.step_count += 1
        length = len(action.message)
        return EchoObservation(
            echoed_message=action.message, message_length=length, reward=length / 10
        )

    @property
    def state(self) -> State:
        return self._state
