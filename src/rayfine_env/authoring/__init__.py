"""What authors write, and how it is read."""

from .environment import Environment, function, reward, tool
from .models import Action, Observation, State, StepResult

__all__ = [
    "Action",
    "Environment",
    "Observation",
    "State",
    "StepResult",
    "function",
    "reward",
    "tool",
]
