"""The echo environment, typed."""

from rayfine_env import load_env
from rayfine_env.envs.echo import EchoAction, EchoEnvironment

with load_env(EchoEnvironment) as env:
    result = env.reset()
    print(result.observation.echoed_message)  # Echo environment ready!
    for message in ("Hello, World!", "again"):
        result = env.step(EchoAction(message=message))
        print(result.observation.echoed_message, result.reward)
