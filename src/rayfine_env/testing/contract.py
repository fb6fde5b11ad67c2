"""The contract as a program: what every environment should do, tried on one."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ..client.sync import SyncSession
from ..errors import JSON, ActionError, RayfineError, Timeout
from ..launch import EnvironmentWrapper
from ..rollout.policy import tools_of
from .findings import Finding
from .fit import misfit
from .play import Played, play, takes_seed

_SEED = "take `seed` in reset() and draw only from random.Random(seed), or a generator like it"
_SLOW_SHARE = 0.5


@dataclass
class _Trial:
    """One environment under test, and the episode that the checks look at."""

    env: EnvironmentWrapper[Any, Any, Any]
    about: JSON
    seed: int
    steps: int
    played: Played

    def again(self) -> Played:
        """The same moves in a session of its own."""
        with self.env.session() as session:
            return play(session, self.about, self.seed, self.steps)


Check = Callable[[_Trial], Iterator[Finding]]


def check(
    env: EnvironmentWrapper[Any, Any, Any], *, seed: int = 0, steps: int = 100
) -> Iterator[Finding]:
    """Play a seeded random episode and more on a loaded environment; a finding for each rule.

    Args:
        env: What load_env returned.
        seed: Of the episode and of its random moves.
        steps: How many moves an episode is played for at most.
    """
    about = env.describe()
    yield from _described(about)
    if about["reset"] is None and not about["steps"] and not tools_of(about):
        return
    try:
        with env.session() as session:
            played = play(session, about, seed, steps)
            trial = _Trial(env, about, seed, steps, played)
            for each in _IN_SESSION:
                yield from each(trial, session)
        for rule in _RULES:
            yield from rule(trial)
    except RayfineError as exc:
        yield _failure(exc)


def assert_contract(
    env: EnvironmentWrapper[Any, Any, Any], *, seed: int = 0, steps: int = 100
) -> None:
    """Fail with every rule that an environment breaks; for tests."""
    broken = [found for found in check(env, seed=seed, steps=steps) if found.status == "fail"]
    lines = [f"{found.check}: {found.found}\n  → {found.remedy}" for found in broken]
    assert not broken, "\n".join(["the contract does not hold", *lines])


def _failure(exc: RayfineError) -> Finding:
    """What ended the checks, with the author's own line where there is one."""
    remedy = str(exc.detail.get("traceback", "")).rstrip()
    if isinstance(exc, Timeout):
        remedy = "make it faster, or raise its limit under [tool.rayfine.timeouts]"
    return Finding("play", "fail", exc.message, remedy)


def _described(about: JSON) -> Iterator[Finding]:
    names = [method["name"] for method in about["methods"]]
    offers = ["reset"] * (about["reset"] is not None) + ["step"] * about["steps"] + names
    yield Finding("methods", "ok", ", ".join(offers))
    bare = [tool["name"] for tool in tools_of(about) if not tool["description"]]
    if bare:
        remedy = "write a docstring: it is what an agent reads"
        yield Finding("tools", "warn", f"{', '.join(bare)} have no description", remedy)
    loose = [
        f"{tool['name']}({name})"
        for tool in tools_of(about)
        for name, prop in tool["input"].get("properties", {}).items()
        if not prop.keys() - {"description", "default"}
    ]
    if loose:
        yield Finding("schema", "warn", f"{', '.join(loose)} may be anything", "annotate its type")
    if about["steps"] and not about["action"].keys() - {"title", "description"}:
        remedy = "annotate what step() takes, best with a subclass of Action"
        yield Finding("schema", "warn", "an action may be anything", remedy)


def _state(trial: _Trial, session: "SyncSession[Any, Any, Any]") -> Iterator[Finding]:
    state = session.state()
    wrong = misfit(state, trial.about["state"])
    yield _verdict("state", wrong, "can be read, and is of its type", "return what state says")
    count = state.get("step_count") if isinstance(state, dict) else None
    taken = sum("observation" in move for move in trial.played.moves)
    if trial.about["steps"] and count not in (None, taken):
        found = f"step_count is {count} after {taken} steps"
        yield Finding("state", "warn", found, "set it to 0 in reset and add 1 in step")


def _rewards(trial: _Trial, session: "SyncSession[Any, Any, Any]") -> Iterator[Finding]:
    for method in trial.about["methods"]:
        if method["kind"] == "reward" and not method["input"].get("required"):
            value = session.call(method["name"])
            good = isinstance(value, (int, float)) and math.isfinite(value)
            wrong = None if good else f"{method['name']} gave {value!r:.80}"
            yield _verdict("reward", wrong, f"{method['name']} gave {value!r:.20}", "give a number")


def _over(trial: _Trial, session: "SyncSession[Any, Any, Any]") -> Iterator[Finding]:
    """After its end an episode takes no step, and a reset begins the next."""
    if trial.about["reset"] is None:
        return
    if trial.about["steps"] and trial.played.done:
        try:
            session.step(None)
            yield Finding("episode", "fail", "a step after the end went through", "")
        except ActionError:
            yield Finding("episode", "ok", "takes no step after its end")
    second = play(session, trial.about, trial.seed, 0)
    first = Played(opening=trial.played.opening)
    wrong = first.difference(Played(opening=second.opening))
    remedy = f"a second reset in one session must begin anew: {_SEED}"
    yield _verdict("reset", wrong, "begins anew in the same session", remedy)


def _types(trial: _Trial) -> Iterator[Finding]:
    """What was seen is of the types that were declared."""
    played = trial.played
    seen = [played.opening, *played.moves] if trial.about["steps"] else []
    seen = [each for each in seen if each and "observation" in each]
    schema = trial.about["observation"]
    wrongs = [wrong for each in seen if (wrong := misfit(each["observation"], _open(schema)))]
    found = f"{len(seen)} observations were sent and are of their type"
    if seen:
        remedy = "return what step() declares, or declare what it returns"
        yield _verdict("observations", wrongs[0] if wrongs else None, found, remedy)
    rewards = [each["reward"] for each in seen if each["reward"] is not None]
    if rewards:
        yield Finding("rewards", "ok", f"{len(rewards)}, from {min(rewards)} to {max(rewards)}")


def _open(schema: JSON | None) -> JSON:
    """An observation's own fields: what every observation has beside them is sent elsewhere."""
    beside = ("reward", "done", "terminated", "truncated", "metadata")
    found = dict(schema or {})
    if "required" in found:
        found["required"] = [name for name in found["required"] if name not in beside]
    return found


def _moves(trial: _Trial) -> Iterator[Finding]:
    played = trial.played
    for name, exc in sorted(played.raised.items()):
        remedy = "return what an agent can read, or narrow the types of its arguments"
        traceback = str(exc.detail.get("traceback", "")).rstrip()
        yield Finding("tools", "warn", f"{name}: {exc.message}", f"{remedy}\n{traceback}".rstrip())
    if played.refused and len(played.refused) == len(played.moves):
        remedy = "say in its type what an action may be: bounds, Literal, a pattern"
        first = played.refused[0]
        yield Finding("actions", "warn", f"no random action was taken: {first:.120}", remedy)


def _deterministic(trial: _Trial) -> Iterator[Finding]:
    wrong = trial.played.difference(trial.again())
    how = f"with the seed {trial.seed}" if takes_seed(trial.about) else "without a seed"
    found = f"{len(trial.played.moves)} moves gave the same again {how}"
    yield _verdict("determinism", wrong, found, _SEED)


def _ends(trial: _Trial) -> Iterator[Finding]:
    if not trial.about["steps"]:
        return
    if trial.played.done:
        yield Finding("ends", "ok", f"after {len(trial.played.moves)} steps")
    else:
        found = f"{trial.steps} random steps did not end an episode"
        remedy = "where it may go on for ever, set max_steps in the project file"
        yield Finding("ends", "warn", found, remedy)


def _in_time(trial: _Trial) -> Iterator[Finding]:
    limits = trial.about["timeouts"]
    for kind, took in trial.played.seconds.items():
        limit = limits.get(kind)
        if limit is not None and took > limit * _SLOW_SHARE:
            remedy = f"raise timeouts.{kind} in the project file, or be faster"
            yield Finding("time", "warn", f"a {kind} took {took:.1f} of {limit:g} s", remedy)
            return
    slowest = ", ".join(f"{k} {took * 1000:.1f} ms" for k, took in trial.played.seconds.items())
    yield Finding("time", "ok", f"at most {slowest}" if slowest else "nothing was timed")


def _verdict(name: str, wrong: str | None, found: str, remedy: str) -> Finding:
    if wrong is None:
        return Finding(name, "ok", found)
    return Finding(name, "fail", wrong, remedy)


_IN_SESSION = (_rewards, _state, _over)
_RULES: tuple[Check, ...] = (_types, _moves, _deterministic, _ends, _in_time)
