"""What authors write, and how it is read."""

from .environment import Environment, function, prompt, resource, reward, tool
from .models import Action, Observation, State, StepResult
from .reports import report

__all__ = [
    "Action",
    "Environment",
    "Observation",
    "State",
    "StepResult",
    "function",
    "prompt",
    "report",
    "resource",
    "reward",
    "tool",
]
