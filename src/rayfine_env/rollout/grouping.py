"""Episodes put back together into the groups that a trainer compares."""

from collections.abc import Iterable

from .plan import Plan
from .trajectory import Group, Stop, Trajectory


class Grouping:
    """Holds the episodes of groups that are not whole yet."""

    def __init__(self, plan: Plan, policy: str, kept: Iterable[Trajectory]) -> None:
        self._plan = plan
        self._policy = policy
        self._open: dict[str, list[Trajectory]] = {}
        for episode in kept:
            self._open.setdefault(episode.group_id, []).append(episode)

    def add(self, episode: Trajectory) -> Group | None:
        """The episode's group, if this was the last one that it needed."""
        found = self._open.setdefault(episode.group_id, [])
        found.append(episode)
        if len(found) < self._plan.samples:
            return None
        del self._open[episode.group_id]
        return self._whole(sorted(found, key=lambda each: each.sample))

    def _whole(self, found: list[Trajectory]) -> Group | None:
        # Of redundant episodes the scored come first; those that were called off never count.
        ranked = sorted(
            (each for each in found if each.stop is not Stop.SURPLUS),
            key=lambda each: (not each.scored, each.sample),
        )[: self._plan.group_size]
        scored = [each for each in ranked if each.scored]
        if self._policy == "drop" and len(scored) < self._plan.group_size:
            return None
        episodes = scored if self._policy == "partial" else ranked
        if not episodes:
            return None
        ordered = sorted(episodes, key=lambda each: each.sample)
        return Group(ordered[0].group_id, ordered[0].task_id, ordered)
