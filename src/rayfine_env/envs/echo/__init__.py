"""The echo environment, and its typed client."""

from rayfine_env import EnvClient, State

from .env import EchoAction, EchoEnvironment, EchoObservation

__all__ = ["EchoAction", "EchoEnv", "EchoEnvironment", "EchoObservation"]


class EchoEnv(EnvClient[EchoAction, EchoObservation, State]):
    """A handle on a running echo server."""
