"""The application, as OpenEnv makes it."""

from openenv.core.env_server.http_server import create_app

from ..models import GuessAction, GuessObservation
from .guess_environment import GuessEnvironment

app = create_app(
    GuessEnvironment,
    GuessAction,
    GuessObservation,
    env_name="guess_env",
    max_concurrent_envs=4,
)
