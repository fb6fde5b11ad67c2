"""A Ray actor's method, one call after another, and pipelined over 16 actors."""

import ray
from contest import contend, timed

ACTORS = 16


@ray.remote(num_cpus=0)
class Echo:
    def step(self, message: str) -> dict:
        return {"echoed_message": message, "reward": len(message) / 10}


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    actors = [Echo.remote() for _ in range(ACTORS)]
    one = actors[0]
    ray.get([actor.step.remote("") for actor in actors])

    def pipelined(steps: int) -> list[float]:
        rounds = timed(
            steps // ACTORS,
            lambda: ray.get([actor.step.remote("hello world") for actor in actors]),
        )
        return [seconds for seconds in rounds for _ in range(ACTORS)]

    contend(
        {
            "one": lambda steps: timed(steps, lambda: ray.get(one.step.remote("hello world"))),
            "64": pipelined,
        }
    )


main()
