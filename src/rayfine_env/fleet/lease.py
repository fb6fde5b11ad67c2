"""Who holds an instance, and whether it may still be used."""

import enum
from dataclasses import dataclass

from ..errors import InfraError
from ..providers.base import Instance


class LeaseState(enum.Enum):
    # READY: the instance is running and nobody holds it.
    READY = "ready"
    # HELD: one holder has it, for one use.
    HELD = "held"
    # ENDED: released or lost; never leaves this state.
    ENDED = "ended"


@dataclass
class Lease:
    """One instance, given to one holder at most once."""

    instance: Instance
    state: LeaseState = LeaseState.READY
    holder: str = ""

    def hold(self, holder: str) -> Instance:
        if self.state is not LeaseState.READY:
            raise InfraError(f"{self.instance.id} is {self.state.value}: it cannot be held")
        self.state, self.holder = LeaseState.HELD, holder
        return self.instance

    def end(self) -> None:
        self.state = LeaseState.ENDED
