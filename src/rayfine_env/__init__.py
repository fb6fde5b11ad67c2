"""Rayfine: write an environment once, run it anywhere, call it every way."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .authoring import (
        Action,
        Environment,
        Observation,
        State,
        StepResult,
        function,
        prompt,
        report,
        resource,
        reward,
        tool,
    )
    from .authoring.mcp import tools_from_mcp
    from .client.session import Session
    from .client.sync import SyncSession
    from .errors import RayfineError
    from .http_env_client import HTTPEnvClient
    from .images.build import build_image_from_env
    from .launch import (
        AsyncEnvironmentWrapper,
        EnvClient,
        EnvironmentWrapper,
        aattach,
        aload_env,
        attach,
        cleanup_all_environments,
        get_environment,
        list_active_environments,
        load_env,
    )
    from .providers.local_docker import ContainerProvider, LocalDockerProvider
    from .server.fastapi import create_fastapi_app

__version__ = "0.1.0"

# Each name is imported when it is first used: an author's module pays for no client, and
# nobody pays for a server it does not run.
_HOMES = {
    "Action": "authoring",
    "AsyncEnvironmentWrapper": "launch",
    "ContainerProvider": "providers.local_docker",
    "EnvClient": "launch",
    "Environment": "authoring",
    "EnvironmentWrapper": "launch",
    "HTTPEnvClient": "http_env_client",
    "LocalDockerProvider": "providers.local_docker",
    "Observation": "authoring",
    "RayfineError": "errors",
    "Session": "client.session",
    "State": "authoring",
    "StepResult": "authoring",
    "SyncSession": "client.sync",
    "aattach": "launch",
    "aload_env": "launch",
    "attach": "launch",
    "build_image_from_env": "images.build",
    "cleanup_all_environments": "launch",
    "create_fastapi_app": "server.fastapi",
    "function": "authoring",
    "get_environment": "launch",
    "list_active_environments": "launch",
    "load_env": "launch",
    "prompt": "authoring",
    "report": "authoring",
    "resource": "authoring",
    "reward": "authoring",
    "tool": "authoring",
    "tools_from_mcp": "authoring.mcp",
}

__all__ = [
    "Action",
    "AsyncEnvironmentWrapper",
    "ContainerProvider",
    "EnvClient",
    "Environment",
    "EnvironmentWrapper",
    "HTTPEnvClient",
    "LocalDockerProvider",
    "Observation",
    "RayfineError",
    "Session",
    "State",
    "StepResult",
    "SyncSession",
    "aattach",
    "aload_env",
    "attach",
    "build_image_from_env",
    "cleanup_all_environments",
    "create_fastapi_app",
    "function",
    "get_environment",
    "list_active_environments",
    "load_env",
    "prompt",
    "report",
    "resource",
    "reward",
    "tool",
    "tools_from_mcp",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rayfine_env' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
