"""An environment in a process of its own, played for one episode."""

from rayfine_env import load_env

with load_env("games:NumberGuess") as env:
    env.reset(seed=7, most=100)
    low, high = 1, 100
    while True:
        result = env.step({"number": (low + high) // 2})
        print(low, high, result.observation["text"])
        if result.done:
            break
        if result.observation["text"] == "higher":
            low = (low + high) // 2 + 1
        else:
            high = (low + high) // 2 - 1
    print("reward:", result.reward)
