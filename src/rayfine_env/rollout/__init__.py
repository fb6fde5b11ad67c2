"""Rollouts: many episodes of one policy in one environment, kept, scored and read."""

from .chat import ChatPolicy, Judge
from .directory import read_episodes
from .engine import RolloutEngine
from .limits import Limits
from .policy import DONE, Decision, Person, Policy, RandomPolicy, Replay, Scripted, Turn
from .rubric import Function, MethodReward, Rubric, StepRewards
from .trajectory import Cause, Fault, Group, Step, Stop, Task, Tokens, ToolCall, Trajectory

__all__ = [
    "DONE",
    "Cause",
    "ChatPolicy",
    "Decision",
    "Fault",
    "Function",
    "Group",
    "Judge",
    "Limits",
    "MethodReward",
    "Person",
    "Policy",
    "RandomPolicy",
    "Replay",
    "RolloutEngine",
    "Rubric",
    "Scripted",
    "Step",
    "StepRewards",
    "Stop",
    "Task",
    "Tokens",
    "ToolCall",
    "Trajectory",
    "Turn",
    "read_episodes",
]
