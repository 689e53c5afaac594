"""Play subteams of a team: every subset of its agents, the others replaced by the environment's stub.

With up to `MOST_AGENTS` agents all 2^N subteams are played, from which `contributions` computes Shapley values without
an approximation; with more agents only the whole team and the team without each agent.  All subteams play the same
problems with the same random draws, side by side, so their programs are executed in one batch per turn; an action that
several subteams share is sampled once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.evaluation.run import Problem, record_of
from pipeline_lib.play import Player, Root, paired
from pipeline_lib.play.fixing import Fixed, FixedActions, SampledOnce

#: Teams of up to this many agents are played in all subsets.
MOST_AGENTS = 4


def subsets(agents: int) -> list[tuple[int, ...]]:
    """Return the subteams that are played, the whole team first; each as numbers of the agents that are present."""
    if agents <= MOST_AGENTS:
        return [found for size in range(agents, -1, -1) for found in itertools.combinations(range(agents), size)]
    return [*itertools.combinations(range(agents), agents), *itertools.combinations(range(agents), agents - 1)]


def evaluate_subteams(player: Player, problems: Sequence[Problem], samples: int, seed: int) -> list[EpisodeRecord]:
    """Play the subteams of a team.

    Args:
        player: the team, in its environment, by its protocol.
        problems: problems with distinct ids.
        samples: episodes per problem and subteam, > 0.
        seed: of everything drawn; the whole team's episodes are those of `evaluate_team` with this seed.

    Returns:
        One record per episode; ``details`` has ``agents`` (the names of all) and ``present`` (of those in the
        subteam), in addition to what `evaluate_team` records.
    """
    known = {problem.id: problem for problem in problems}
    roots: list[Root] = []
    named: list[dict[str, Any]] = []
    for root in paired(problems, samples, seed):
        agents = player.environment.agents(root.problem)
        for present in subsets(len(agents)):
            absent = frozenset(range(len(agents))) - set(present)
            roots.append(replace(root, problem=Fixed(root.problem, absent)))
            named.append({"agents": list(agents), "present": [agents[i] for i in present]})
    playing = replace(
        player, environment=FixedActions(player.environment), engine=SampledOnce(player.engine), watcher=None
    )
    records = []
    for root, names, decisions in zip(roots, named, playing.play(roots).episodes(), strict=True):
        sample = getattr(root.chance, "sample", 0)
        record = record_of(known[root.problem.id], sample, decisions)
        records.append(replace(record, details={**record.details, **names}))
    return records
