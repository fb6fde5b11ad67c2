"""The coding environment, and its typed client."""

from rayfine_env import EnvClient

from .env import CodeAction, CodeObservation, CodeState, CodingEnvironment

__all__ = ["CodeAction", "CodeObservation", "CodeState", "CodingEnv", "CodingEnvironment"]


class CodingEnv(EnvClient[CodeAction, CodeObservation, CodeState]):
    """A handle on a running coding server."""
