"""Who may ask for what: trainers everything, agents tools and steps, readers a look."""

import enum

from ..errors import AuthError
from ..wire import Request


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
