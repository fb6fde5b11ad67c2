"""Plays episodes with random actions, on several sessions at once, and keeps what happened."""

import itertools
import queue
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import JSON, ActionError, ConfigError, EnvError, RayfineError
from .sampling import Sampler

if TYPE_CHECKING:
    from ..authoring.models import StepResult
    from ..client.sync import SyncSession
    from ..launch import EnvironmentWrapper

    Session = SyncSession[Any, Any, Any]
    Env = EnvironmentWrapper[Any, Any, Any]


@dataclass
class Episode:
    """The record of one episode; one that failed has an error and no reward, least of all 0."""

    episode: int
    seed: int
    observation: Any = None
    steps: list[JSON] = field(default_factory=list)
    reward: float | None = None
    error: JSON | None = None

    def add(self, action: Any, result: "StepResult[Any]", last: bool) -> None:
        self.steps.append(
            {
                "action": action,
                "observation": result.observation,
                "reward": result.reward,
                "terminated": result.terminated,
                "truncated": result.truncated or (last and not result.terminated),
            }
        )

    def finish(self) -> None:
        rewards = [step["reward"] for step in self.steps if step["reward"] is not None]
        self.reward = sum(rewards) if rewards else None


@dataclass(frozen=True)
class Rules:
    """How every episode of a run is played. Each has a seed of its own, for both sides."""

    action: JSON
    takes_seed: bool
    seed: int
    max_steps: int

    @classmethod
    def of(cls, env: "Env", seed: int, max_steps: int) -> "Rules":
        about = env.describe()
        reset = about["reset"]
        if reset is None or not about["steps"]:
            raise ConfigError(
                f"{about['name']} has no episodes to play: it lacks reset or step, or this token "
                "may not use them; `rayfine methods` lists what it has"
            )
        takes_seed = "seed" in reset["properties"] or bool(reset.get("additionalProperties"))
        return cls(about["action"], takes_seed, seed, max_steps)


class Player:
    """Plays one episode after another on one session, and on a new one where that was lost."""

    def __init__(self, env: "Env", session: "Session", rules: Rules) -> None:
        self._env = env
        self._session: Session | None = session
        self._rules = rules

    def play(self, number: int) -> Episode:
        episode = Episode(number, self._rules.seed + number)
        try:
            self._session = self._session or self._env.session()
            self._play(self._session, episode)
        except RayfineError as exc:
            episode.error = {"code": exc.code, "message": exc.message}
            if not isinstance(exc, (ActionError, EnvError)):
                self._session = None
        return episode

    def _play(self, session: "Session", episode: Episode) -> None:
        actions = Sampler(self._rules.action, random.Random(episode.seed))
        result = session.reset(episode.seed if self._rules.takes_seed else None)
        episode.observation = result.observation
        for left in reversed(range(self._rules.max_steps)):
            if result.done:
                break
            action = actions.draw()
            result = session.step(action)
            episode.add(action, result, last=left == 0)
        episode.finish()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()


def players(env: "Env", rules: Rules, concurrency: int) -> list[Player]:
    """One per session that the server has room for; the handle's own, where it has no more."""
    # A full server keeps each who asks waiting a while, so the first refusal is the last asked for.
    sessions = list(itertools.takewhile(lambda s: s.is_ready(), env.sessions(concurrency)))
    return [Player(env, session, rules) for session in sessions or [env]]


def play_all(team: list[Player], episodes: int) -> Iterator[Episode]:
    """All episodes in their order, played by one thread per player."""
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    played: queue.SimpleQueue[Episode | None] = queue.SimpleQueue()
    for number in range(episodes):
        todo.put(number)
    for player in team:
        # Daemons: an interrupted run does not wait for an environment that hangs.
        threading.Thread(target=_work, args=(player, todo, played), daemon=True).start()
    yield from _in_order(_until_all_left(played, len(team)))
    for player in reversed(team):
        player.close()


def _work(
    player: Player, todo: "queue.SimpleQueue[int]", played: "queue.SimpleQueue[Episode | None]"
) -> None:
    try:
        while True:
            played.put(player.play(todo.get_nowait()))
    except queue.Empty:
        return
    finally:
        played.put(None)


def _until_all_left(played: "queue.SimpleQueue[Episode | None]", working: int) -> Iterator[Episode]:
    while working:
        if (episode := played.get()) is None:
            working -= 1
        else:
            yield episode


def _in_order(episodes: Iterator[Episode]) -> Iterator[Episode]:
    """By number, so that equal seeds write equal files."""
    waiting: dict[int, Episode] = {}
    number = 0
    for episode in episodes:
        waiting[episode.episode] = episode
        while number in waiting:
            yield waiting.pop(number)
            number += 1
