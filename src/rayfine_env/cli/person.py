"""A person at the terminal as a policy: shown each observation, asked for each action."""

import json
from typing import TYPE_CHECKING, Any

import click

from ..errors import PolicyError
from .methods import signature, type_name
from .output import Output
from .target import parsed

if TYPE_CHECKING:
    from ..rollout.policy import Person, Turn

_HELP = "JSON or text is the action; TOOL {…} calls a tool; an empty line ends the episode."


def person(output: Output) -> "Person":
    from ..rollout.policy import Person

    return Person(lambda turn: ask(output, turn))


def ask(output: Output, turn: "Turn") -> Any:
    """Show the turn, then read what to do."""
    if turn.number == 0:
        output.note(f"{turn.task.prompt or turn.trajectory.episode_id}: {_HELP}")
        for tool in turn.tools:
            output.note(f"  {tool['name']}({signature(tool['input'])}): {tool['description']}")
        if turn.about["steps"]:
            action = turn.about["action"]
            output.note(f"  action: {signature(action) or type_name(action)}")
    if turn.error:
        output.note(f"refused: {turn.error}", style="bold red")
    for call in turn.calls:
        output.note(f"{call.name}: {call.error or json.dumps(call.result, default=str)}")
    if turn.reward is not None:
        output.note(f"reward: {turn.reward:g}")
    if not turn.calls:
        output.note(f"observation: {json.dumps(turn.observation, default=str)}")
    return _move(turn, _line())


def _line() -> str:
    try:
        return str(click.prompt(">", default="", show_default=False, prompt_suffix=" ", err=True))
    except click.Abort as exc:
        raise PolicyError("the person left") from exc


def _move(turn: "Turn", text: str) -> Any:
    from ..rollout.policy import DONE
    from ..rollout.trajectory import ToolCall

    if not text:
        return DONE
    name, _, arguments = text.partition(" ")
    if any(tool["name"] == name for tool in turn.tools):
        given = parsed(arguments) if arguments else {}
        return ToolCall(name, given if isinstance(given, dict) else {})
    return parsed(text)
