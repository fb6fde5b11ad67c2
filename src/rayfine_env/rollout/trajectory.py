"""What an episode leaves behind: its steps, why it stopped, what went wrong and whose fault."""

import enum
from typing import Any

import msgspec

from ..errors import (
    JSON,
    ActionError,
    Cancelled,
    CapacityError,
    EnvError,
    InfraError,
    LoadError,
    NotFound,
    PolicyError,
    RayfineError,
    ScoreError,
    SessionLost,
    Timeout,
    Unsupported,
)


class Stop(enum.Enum):
    """Why an episode came to its end."""

    # The environment ended it, by itself or at a limit of its own.
    TERMINATED = "terminated"
    TRUNCATED = "truncated"
    # The policy had nothing more to do.
    ANSWERED = "answered"
    # A limit of the rollout was reached.
    TURNS = "turns"
    TOKENS = "tokens"
    TOOL_CALLS = "tool_calls"
    SECONDS = "seconds"
    IDLE = "idle"
    # It broke; `error` says how.
    FAILED = "failed"
    # Its group had enough without it.
    SURPLUS = "surplus"


class Cause(enum.Enum):
    """Whose fault a failure was."""

    AGENT = "agent"
    AUTHOR = "author"
    INFRA = "infra"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    POLICY = "policy"
    REWARD = "reward"


_CAUSES: tuple[tuple[tuple[type[RayfineError], ...], Cause], ...] = (
    ((ActionError, NotFound), Cause.AGENT),
    ((EnvError, LoadError, Unsupported), Cause.AUTHOR),
    ((Timeout,), Cause.TIMEOUT),
    ((Cancelled,), Cause.CANCELLED),
    ((PolicyError,), Cause.POLICY),
    ((ScoreError,), Cause.REWARD),
)


def cause_of(exc: RayfineError) -> Cause:
    return next((cause for kinds, cause in _CAUSES if isinstance(exc, kinds)), Cause.INFRA)


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as plain data."""

    cause: Cause
    code: str
    message: str
    retryable: bool = False
    """Whether the same episode may go well on a fresh environment."""
    phase: str = ""
    retry_after: float | None = None
    traceback: str = ""

    @classmethod
    def of(cls, exc: RayfineError) -> "Fault":
        retryable = isinstance(exc, (SessionLost, CapacityError))
        if isinstance(exc, InfraError):
            retryable = exc.retryable
        after = exc.retry_after if isinstance(exc, CapacityError) else None
        phase, traceback = (str(exc.detail.get(key, "")) for key in ("phase", "traceback"))
        return cls(cause_of(exc), exc.code, exc.message, retryable, phase, after, traceback)


class ToolCall(msgspec.Struct, omit_defaults=True):
    """A tool that a policy wants called, and what came of it."""

    name: str
    arguments: JSON = {}
    id: str = ""
    result: Any = None
    error: str | None = None
    seconds: float = 0.0


class Tokens(msgspec.Struct, omit_defaults=True):
    """What one request to a model took and gave; ids, logprobs and mask where it tells them."""

    prompt: int = 0
    completion: int = 0
    ids: list[int] | None = None
    logprobs: list[float] | None = None
    mask: list[int] | None = None
    texts: list[str] | None = None


def _none() -> None:
    """A default that is written all the same: who reads a row finds the key."""


class Step(msgspec.Struct, omit_defaults=True):
    """One turn: what the policy did and what the environment answered."""

    action: Any = msgspec.field(default_factory=_none)
    observation: Any = msgspec.field(default_factory=_none)
    reward: float | None = msgspec.field(default_factory=_none)
    terminated: bool = msgspec.field(default_factory=bool)
    truncated: bool = msgspec.field(default_factory=bool)
    info: JSON = {}
    calls: list[ToolCall] = []
    message: JSON | None = None
    tokens: Tokens | None = None
    error: str | None = None
    """A mistake of the agent that the policy was told of; the environment is as it was."""
    policy_s: float = 0.0
    env_s: float = 0.0
    usage: JSON = {}

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


class Task(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What an episode is about: `reset` holds arguments for reset, `data` is the user's own."""

    id: str = ""
    seed: int | None = None
    reset: JSON = {}
    prompt: str = ""
    data: JSON = {}


class Trajectory(msgspec.Struct, kw_only=True):
    """The record of one episode; one that failed has an error and no reward, least of all 0."""

    episode_id: str
    group_id: str
    task_id: str
    sample: int = 0
    seed: int
    attempt: int = 1
    environment: JSON = {}
    policy: str = ""
    observation: Any = None
    steps: list[Step] = []
    messages: list[JSON] = []
    reward: float | None = None
    rewards: dict[str, float] = {}
    stop: Stop | None = None
    error: Fault | None = None
    started: str = ""
    seconds: float = 0.0
    scoring_s: float = 0.0
    prefix: int = 0
    """How many of the first steps it shares with its group."""

    def fail(self, exc: RayfineError) -> None:
        self.stop, self.error, self.reward = Stop.FAILED, Fault.of(exc), None

    @property
    def scored(self) -> bool:
        """Whether it may be learnt from."""
        return self.error is None and self.reward is not None

    @property
    def tool_calls(self) -> int:
        return sum(len(step.calls) for step in self.steps)

    @property
    def tokens(self) -> int:
        """Of all requests to the model, prompt and completion."""
        return sum(s.tokens.prompt + s.tokens.completion for s in self.steps if s.tokens)


class Group(msgspec.Struct):
    """The episodes of one task and seed, to be compared with each other."""

    group_id: str
    task_id: str
    episodes: list[Trajectory]

    @property
    def rewards(self) -> list[float | None]:
        return [episode.reward for episode in self.episodes]
