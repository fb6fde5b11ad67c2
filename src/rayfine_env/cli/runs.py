"""What is done with a run that is there: `rescore`, `export`, `report` and `view`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import ConfigError
from .output import Output, json_option, visible

if TYPE_CHECKING:
    from ..rollout.trajectory import Step, Trajectory

_RUN = click.argument("run_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@_RUN
@click.option("--rubric", "name", required=True, metavar="NAME",
              help="file.py:name or module:name of a rubric, a function or a list.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0,
              metavar="SECONDS", show_default=True, help="For one episode.")  # fmt: skip
@json_option
@click.pass_obj
def rescore(output: Output, /, run_dir: Path, name: str, timeout: float) -> None:
    """Recompute the rewards of stored episodes, without playing them again.

    They go to rewards.jsonl, which `report`, `export` and `view` lay over the run; what the run
    itself gave stays in episodes.jsonl.
    """
    import asyncio

    from ..rollout.named import attribute_named
    from ..rollout.rescore import rescore
    from ..rollout.rubric import as_rubric

    rubric = as_rubric(attribute_named(name, "a rubric is"))
    done = asyncio.run(rescore(run_dir, rubric, timeout))
    if output.as_json:
        return output.document(done)
    output.show("{scored} of {episodes} episodes scored, {changed} of them anew".format(**done))
    output.show(f"rewards: {done['path']}")


@click.command()
@_RUN
@click.argument("file", type=_FILE)
@click.option("--steps", is_flag=True, help="A row a step, not a row an episode.")
@click.option("--scored", is_flag=True, help="Leave out episodes that have no reward.")
@json_option
@click.pass_obj
def export(output: Output, /, run_dir: Path, file: Path, steps: bool, scored: bool) -> None:
    """Write a run as FILE.jsonl or FILE.parquet."""
    from ..rollout.export import export
    from ..rollout.rescore import scored_episodes

    found = scored_episodes(run_dir)
    rows = export((e for e in found if e.scored or not scored), file, steps=steps)
    if output.as_json:
        return output.document({"path": str(file), "rows": rows})
    output.show(f"{rows} rows: {file}")


@click.command()
@_RUN
@click.option("--against", type=click.Path(exists=True, file_okay=False, path_type=Path),
              metavar="RUN_DIR", help="Another run, to be shown beside it.")  # fmt: skip
@click.option("--threshold", type=float, metavar="REWARD",
              help="From where on an episode is solved.  [default: above 0]")  # fmt: skip
@click.option("--out", type=_FILE, metavar="FILE", help="[default: RUN_DIR/report.html]")
@json_option
@click.pass_obj
def report(
    output: Output,
    /,
    run_dir: Path,
    against: Path | None,
    threshold: float | None,
    out: Path | None,
) -> None:
    """Write one self-contained page that shows the run and every step of it."""
    from ..rollout.report import report

    runs = [run_dir] if against is None else [run_dir, against]
    path = out or run_dir / "report.html"
    path.write_text(report(runs, threshold))
    if output.as_json:
        return output.document({"path": str(path)})
    output.show(f"report: {path}")


@click.command()
@_RUN
@click.argument("episode", required=False)
@json_option
@click.pass_obj
def view(output: Output, /, run_dir: Path, episode: str | None) -> None:
    """List a run's episodes, or show one of them step by step."""
    import msgspec

    from ..rollout.rescore import scored_episodes

    found = list(scored_episodes(run_dir)) if episode is None else _one(run_dir, episode)
    if output.as_json:
        rows = [msgspec.to_builtins(each, builtin_types=(bytes,)) for each in found]
        return output.document(rows if episode is None else rows[0])
    if episode is None:
        return output.show(_table(found))
    _show(output, found[0])


def _one(run_dir: Path, episode: str) -> "list[Trajectory]":
    from ..rollout.rescore import scored_episodes

    for each in scored_episodes(run_dir):
        if each.episode_id == episode:
            return [each]
    raise ConfigError(f"{run_dir} has no episode {episode!r}; `rayfine view {run_dir}` lists them")


def _table(found: "list[Trajectory]") -> Any:
    from rich.table import Table

    table = Table()
    for column in ("episode", "task", "seed", "attempt", "steps", "stop", "reward", "error"):
        table.add_column(column, overflow="fold")
    for each in found:
        reward = "" if each.reward is None else f"{each.reward:.4g}"
        error = f"{each.error.cause.value}: {each.error.message}" if each.error else ""
        stop = each.stop.value if each.stop else ""
        cells = (each.episode_id, each.task_id, each.seed, each.attempt, len(each.steps), stop)
        table.add_row(*(visible(str(cell)) for cell in (*cells, reward, error)))
    return table


def _show(output: Output, episode: "Trajectory") -> None:
    stop = episode.stop.value if episode.stop else "not over"
    output.show(f"{episode.episode_id}: task {episode.task_id}, seed {episode.seed}, {stop}")
    output.show(f"observation: {_text(episode.observation)}")
    for number, step in enumerate(episode.steps, 1):
        output.show(f"step {number}: {_told(step)}")
    if episode.error is not None:
        output.show(f"failed by the {episode.error.cause.value}: {episode.error.message}")
    output.show(f"reward: {episode.reward} {episode.rewards or ''}".rstrip())


def _told(step: "Step") -> str:
    if step.calls:
        calls = (
            f"{call.name}({_text(call.arguments)}) -> {call.error or _text(call.result)}"
            for call in step.calls
        )
        return "; ".join(calls)
    end = " (the end)" if step.done else ""
    refused = f" refused: {step.error}" if step.error else ""
    reward = "" if step.reward is None else f", reward {step.reward:g}"
    return f"{_text(step.action)} -> {_text(step.observation)}{reward}{refused}{end}"


def _text(value: Any) -> str:
    from ..wire import encode_json

    return value if isinstance(value, str) else encode_json(value).decode()
