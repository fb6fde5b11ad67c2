"""`rayfine rollout`: many episodes, kept as they finish, taken up again where they were cut off."""

import re
import secrets
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import JSON, from_code
from .output import Output, exit_code, json_option
from .target import pairs, target_options

if TYPE_CHECKING:
    from ..rollout.engine import RolloutEngine
    from ..rollout.progress import Progress

_REWARDS = "reward: mean {mean:.4g} ± {deviation:.4g}, from {min:.4g} to {max:.4g}"
_PLAYED = (
    "{succeeded} of {episodes} episodes succeeded: {steps} steps in {seconds:.1f} s, "
    "{episodes_per_second:g} episodes/s"
)
_COUNT = click.IntRange(min=1)
_ABOVE = click.FloatRange(min=0, min_open=True)
_FOLDER = click.Path(file_okay=False, path_type=Path)
_LIMITS = ("turns", "tokens", "tool_calls", "seconds", "idle")


@click.command()
@target_options
@click.option(
    "--policy",
    "policy_name",
    default="random",
    show_default=True,
    metavar="POLICY",
    help="random, person, script:FILE, replay:RUN_DIR, openai:MODEL, file.py:name or module:name.",
)
@click.option("--base-url", metavar="URL", help="Of an OpenAI-compatible server, for openai:MODEL.")
@click.option(
    "--tasks",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A JSON list or JSON Lines of tasks: id, seed, reset, prompt, data.",
)
@click.option("--episodes", type=_COUNT, metavar="N", help="[default: 10, or one a task]")
@click.option("--group-size", type=_COUNT, metavar="N", default=1, show_default=True,
              help="How many episodes share a task and a seed.")  # fmt: skip
@click.option("--redundancy", type=click.IntRange(min=0), metavar="N", default=0,
              help="How many more of each group are begun than are needed.")  # fmt: skip
@click.option("--branch-at", type=click.IntRange(min=0), metavar="N",
              help="Play so many turns of a group once, then fork.")  # fmt: skip
@click.option("--concurrency", type=click.IntRange(1, 4096), metavar="N", default=8,
              show_default=True, help="How many are played at once.")  # fmt: skip
@click.option("--retries", type=click.IntRange(min=0), metavar="N", default=2, show_default=True,
              help="How often an episode is tried again that what carries it failed.")  # fmt: skip
@click.option("--breaker", type=_COUNT, metavar="N", default=50, show_default=True,
              help="How many failures in a row stop the run.")  # fmt: skip
@click.option("--stall", type=_ABOVE, metavar="SECONDS", default=60.0, show_default=True,
              help="When to say what everything waits for.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), metavar="N",
              help="Of the first group; each further one adds 1.  "
                   "[default: drawn and told, or that of the run]")  # fmt: skip
@click.option("--turns", type=_COUNT, metavar="N", default=20, show_default=True,
              help="Cut an episode short here, as truncated.")  # fmt: skip
@click.option("--tokens", type=_COUNT, metavar="N", help="As --turns, of the model's tokens.")
@click.option("--tool-calls", type=_COUNT, metavar="N", help="As --turns, of calls.")
@click.option("--seconds", type=_ABOVE, metavar="S", help="As --turns, of time.")
@click.option("--idle", type=_ABOVE, metavar="S", help="How long any one answer may take.")
@click.option("--live", type=_COUNT, metavar="N", help="How many sessions may be open.")
@click.option("--creations-per-second", type=_ABOVE, metavar="N", help="Of sessions.")
@click.option("--policy-requests", type=_COUNT, metavar="N",
              help="How many decisions may be awaited at once.")  # fmt: skip
@click.option("--rubric", "rubric_name", metavar="NAME",
              help="file.py:name or module:name of a rubric, a function or a list of "
                   "them.  [default: the environment's own rewards]")  # fmt: skip
@click.option("--var", "variables", multiple=True, metavar="KEY=VALUE",
              help="A variable set up in every session; may be repeated.")  # fmt: skip
@click.option("--out", type=_FOLDER, metavar="RUN_DIR", help="[default: runs/TARGET-TIME]")
@click.option("--resume", is_flag=True, help="Play only what is missing in RUN_DIR.")
@click.option("--accept-changes", is_flag=True, help="Resume although something was changed.")
@json_option
@click.pass_obj
def rollout(output: Output, /, **given: Any) -> int:
    """Play many episodes and keep every step.

    RUN_DIR gets the plan first, then a line of episodes.jsonl for each episode that has finished:
    once it is there it survives whatever happens next, and --resume plays the rest. An episode
    that failed says why and has no reward, never 0; failures.jsonl has every attempt that was
    tried again.
    """
    import asyncio

    engine, folder, seed = _engine(output, given)
    progress = asyncio.run(_play(output, engine, folder))
    summary = {"path": str(folder), "seed": seed, **progress.summary()}
    if output.as_json:
        output.document(summary)
    else:
        _show(output, progress, summary)
    return _exit_code(progress)


def _engine(output: Output, given: JSON) -> "tuple[RolloutEngine, Path, int]":
    from ..rollout.engine import RolloutEngine
    from ..rollout.limits import Limits
    from ..rollout.plan import read_tasks

    folder = given.pop("out") or Path("runs") / _folder_name(given["target"])
    seed = _seed(given.pop("seed"), folder, given["resume"])
    tasks = read_tasks(path) if (path := given.pop("tasks")) else None
    episodes = given.pop("episodes") or (None if tasks else 10)
    limits = Limits(**{name: given.pop(name) for name in _LIMITS})
    policy = _policy(output, given)
    rubric = _rubric(given.pop("rubric_name"))
    variables = pairs(given.pop("variables"))
    target, options = _launch(given)
    engine = RolloutEngine(
        target,
        policy,
        tasks,
        episodes=episodes,
        seed=seed,
        limits=limits,
        rubric=rubric,
        run_dir=folder,
        variables=variables,
        on_stall=lambda waits: _tell_stall(output, waits),
        **given,
        **options,
    )
    return engine, folder, seed


def _seed(given: int | None, folder: Path, resume: bool) -> int:
    from ..rollout.directory import PLAN, read_plan

    if given is not None:
        return given
    if resume and (folder / PLAN).exists():
        return read_plan(folder).seed
    return secrets.randbelow(1_000_000)


def _policy(output: Output, given: JSON) -> Any:
    from ..rollout.named import policy_named

    name, base_url = given.pop("policy_name"), given.pop("base_url")
    if name != "person":
        return policy_named(name, base_url)
    from .person import person

    given["concurrency"] = 1
    return person(output)


def _rubric(name: str | None) -> Any:
    from ..rollout.named import attribute_named

    return None if name is None else attribute_named(name, "a rubric is")


def _launch(given: JSON) -> tuple[str, JSON]:
    """The target and what load_env is told of it."""
    from .target import launch_options

    if given.pop("session") is not None:
        raise click.UsageError("a rollout opens sessions of its own: leave out --session")
    target = given.pop("target")
    return target, launch_options(target, given.pop("mode"), given.pop("token"),
                                  given.pop("timeout"))  # fmt: skip


async def _play(output: Output, engine: "RolloutEngine", folder: Path) -> "Progress":
    from .live import live_view

    try:
        with live_view(output, engine.progress) as moved:
            async with aclosing(engine.as_completed()) as episodes:
                async for _ in episodes:
                    moved()
    except BaseException:
        if (folder / "plan.json").exists() and engine.progress.planned:
            output.note(f"the episodes so far are in {folder}; --out {folder} --resume goes on")
        raise
    return engine.progress


def _tell_stall(output: Output, waits: list[str]) -> None:
    output.note("nothing moves:", style="bold yellow")
    for line in waits[:10]:
        output.note(f"  {line}")
    if len(waits) > 10:
        output.note(f"  and {len(waits) - 10} more")


def _folder_name(target: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", target.lower().rstrip("/").rpartition("/")[2]).strip("-")
    return f"{name or 'env'}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"


def _exit_code(progress: "Progress") -> int:
    """A failed episode is part of the record; only a run that has nothing else failed."""
    error = progress.first_error
    if error is None or progress.done > progress.failed:
        return 0
    return exit_code(from_code(error.code, "", {}))


def _show(output: Output, progress: "Progress", summary: JSON) -> None:
    from .plot import reward_plot

    if progress.rewards:
        output.show(reward_plot(list(progress.rewards), min(output.screen.width, 100)))
        output.show(_REWARDS.format(**summary["reward"]))
    output.show(_PLAYED.format(**summary))
    if summary["before"]:
        output.show(f"{summary['before']} of {summary['planned']} had been played before")
    for cause, count in progress.causes.most_common():
        output.show(f"{count} × failed: {cause}")
    if first := summary["first_error"]:
        output.show(f"the first: {first['message']}")
    output.show(f"run: {summary['path']}")
