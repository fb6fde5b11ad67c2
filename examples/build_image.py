"""An image of a bundled environment, and an episode in a container of it; needs Docker.

build_image.py [BASE_IMAGE]: without one it starts from a slim image of Python.
"""

import sys

from rayfine_env import build_image_from_env, load_env
from rayfine_env.envs import echo

base = sys.argv[1] if len(sys.argv) > 1 else None
build_image_from_env(echo.__path__[0], "echo-example:latest", base_image=base, quiet=True)
with load_env("echo-example:latest") as env:
    env.reset()
    print(env.step({"message": "Hello, World!"}).reward)  # 1.3
