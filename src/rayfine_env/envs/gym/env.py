"""Any installed Gymnasium environment, as one of ours: `gym:CartPole-v1`."""

import io
import types
from typing import Any

from rayfine_env import Environment, State

try:
    import gymnasium
    from gymnasium.envs.registration import load_env_creator
    from PIL import Image

    from .spaces import plain, typed, wanted
except ImportError as exc:
    raise ImportError(
        "the bridge to Gymnasium needs packages that are not installed; run: "
        "pip install 'rayfine-env[gym]'"
    ) from exc


class Bridge:
    """What every Gymnasium environment does the same way."""

    game: str

    def __init__(self) -> None:
        self._frames = "rgb_array" in _render_modes(self.game)
        self._env = gymnasium.make(self.game, render_mode="rgb_array" if self._frames else None)
        self._state = State()

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> Any:
        self._state = State(episode_id=episode_id)
        observation, info = self._env.reset(seed=seed, options=options)
        return plain(observation), plain(info)

    def step(self, action: Any) -> Any:
        self._state.step_count += 1
        found = self._env.step(wanted(self._env.action_space, action))
        observation, reward, terminated, truncated, info = found
        return plain(observation), float(reward), terminated, truncated, plain(info)

    @property
    def state(self) -> State:
        return self._state

    def frame(self) -> bytes:
        """What the environment looks like now, as a PNG image."""
        if not self._frames:
            raise ValueError(f"{self.game} draws no images")
        drawn: Any = self._env.render()
        file = io.BytesIO()
        Image.fromarray(drawn).save(file, "PNG")
        return file.getvalue()

    def spaces(self) -> dict[str, str]:
        """The action space and the observation space, in Gymnasium's own words."""
        env = self._env
        return {"action": str(env.action_space), "observation": str(env.observation_space)}

    def close(self) -> None:
        self._env.close()


def _render_modes(game: str) -> Any:
    made_by = gymnasium.spec(game).entry_point
    creator = load_env_creator(made_by) if isinstance(made_by, str) else made_by
    return getattr(creator, "metadata", {}).get("render_modes", ())


def __getattr__(game: str) -> Any:
    """The class of one game, made when a target names it; its action type comes from its space."""
    if game.startswith("__"):
        raise AttributeError(game)
    with gymnasium.make(game) as env:
        action: Any = typed(env.action_space)
    about = {"__module__": __name__, "__doc__": f"{game}, of Gymnasium.", "game": game}
    bases = (Bridge, Environment[action, Any, State])
    return types.new_class(game, bases, exec_body=lambda space: space.update(about))
