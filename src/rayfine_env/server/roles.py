"""Who may ask for what: trainers everything, agents tools and steps, readers a look."""

import enum

from ..authoring.environment import FOR_AGENTS
from ..errors import JSON, AuthError
from ..wire import Request

STARTS = ("reset", "setup")
"""What begins anew by its very meaning, and so may replace a lost default session."""


class Role(enum.Enum):
    # TRAINER: runs episodes; may do everything.
    TRAINER = "trainer"
    # AGENT: acts inside an episode; can neither reset, score, set up nor see hidden state.
    AGENT = "agent"
    # READ: watches.
    READ = "read"


_ALLOWED = {
    Role.AGENT: {"step", "step_many", "tool", "describe", "cancel", "ping"},
    Role.READ: {"state", "describe", "ping"},
}


def check_role(role: Role, request: Request) -> None:
    """Refuse what the role may not ask, the same through every door."""
    if role is not Role.TRAINER and request.op not in _ALLOWED[role]:
        raise AuthError(
            f"the {role.value} role may not use {request.op!r}; ask with a trainer's token",
            status=403,
        )


def call_key(role: Role, id: int | str) -> int | str:
    """A call among all of a session; who guesses the id of another role's call does not name it."""
    return id if role is Role.TRAINER or not id else f"{role.value}:{id}"


def shown_to(role: Role, document: JSON) -> JSON:
    """The contract as a role may see it: an agent learns of its tools, not of what scores it."""
    if role is not Role.AGENT:
        return document
    shown = [method for method in document["methods"] if method["kind"] in FOR_AGENTS]
    return {**document, "methods": shown, "reset": None, "state": None}
