"""An image of a bundled environment, and an episode in a container of it; needs Docker."""

from rayfine_env import build_image_from_env, load_env
from rayfine_env.envs import echo

build_image_from_env(env_path=echo.__path__[0], image_tag="echo-example:latest", quiet=True)
with load_env("echo-example:latest") as env:
    env.reset()
    print(env.step({"message": "Hello, World!"}).reward)  # 1.3
