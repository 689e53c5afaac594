"""How often teams use each cooperation scheme, whether it goes with success, and what training changed.

A scheme is what an environment reports of a joint action under ``details["schemes"]``; an episode may show several, or
none.  Success is compared within problems and training runs: an episode with a scheme against other episodes of the
same team on the same problem, so that easy problems or better runs do not decide.  Teams choose their schemes, so this
is association; it does not show that a scheme causes success.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipeline_lib.environment_api.metrics import Metric
from pipeline_lib.evaluation.clusters import encode
from pipeline_lib.evaluation.episodes import EpisodeRecord, by_problem, values_of
from pipeline_lib.evaluation.evidence import over_problems, paired
from pipeline_lib.evaluation.results import Estimate, TestResult, holm

Episodes = Sequence[EpisodeRecord]

#: The name of an episode without any scheme.
NO_SCHEME = "none"
#: Of this many families at most the rates are given, those with the most problems first.
MOST_FAMILIES = 12

_SHARE = Metric("share of episodes", share=True)


@dataclass(frozen=True, slots=True)
class Success:
    """How much more often episodes with a scheme succeed than others of the same team on the same problem."""

    scheme: str  #: its name
    problems: int  #: number of problems with episodes of both kinds
    test: TestResult  #: mean difference of the metric over these problems, in [-1, 1] for a share; clustered by family
    p_adjusted: float | None = None  #: p value corrected for all schemes (Holm), or None


@dataclass(frozen=True, slots=True)
class SchemeUse:
    """The cooperation schemes of the teams of an experiment."""

    names: tuple[str, ...]  #: the schemes that any episode shows
    #: Share of test episodes by team (``base``, ``selected``, ``seed 0``, ...) and scheme, with intervals.
    teams: Mapping[str, Mapping[str, Estimate]]
    #: The same of the selected teams by family of problems, at most `MOST_FAMILIES`.
    families: Mapping[str, Mapping[str, Estimate]]
    further_families: int  #: number of families that were left out
    #: Share of validation episodes by training step and scheme, all training runs together; step 0 is the base if it
    #: was evaluated.
    checkpoints: Mapping[int, Mapping[str, Estimate]]
    runs: Mapping[int, Mapping[int, Mapping[str, float]]]  #: the same by training seed, without intervals
    success: tuple[Success, ...]  #: of each scheme that some problems show with and without
    #: Share of test episodes by what the base and the selected team show on the same problem and draw; several schemes
    #: are joined by " + ".
    moves: Mapping[tuple[str, str], float]


def scheme_use(
    base: Episodes,
    selected: Mapping[int, Episodes],
    sweep: Mapping[int, Mapping[int, Episodes]],
    metric: str,
    level: float,
) -> SchemeUse | None:
    """Return the use of schemes, or None if no episode shows one.

    ``base`` and ``selected`` (by training seed) are test episodes, ``sweep`` has validation episodes by training seed
    and step.  ``metric`` says what success means; ``level`` is the coverage of the intervals, in (0, 1).
    """
    swept = [episodes for steps in sweep.values() for episodes in steps.values()]
    names = tuple(
        sorted({name for episodes in (base, *selected.values(), *swept) for e in episodes for name in _schemes(e)})
    )
    if not names:
        return None
    every = [episode for episodes in selected.values() for episode in episodes]
    steps = sorted({step for found in sweep.values() for step in found})
    families = Counter(found[0].family for found in by_problem(every).values())
    shown = sorted(families, key=lambda family: (-families[family], family))[:MOST_FAMILIES]
    return SchemeUse(
        names=names,
        teams={
            "base": rates(base, names, level),
            "selected": rates(every, names, level),
            **{f"seed {seed}": rates(episodes, names, level) for seed, episodes in sorted(selected.items())},
        },
        families={
            family: rates([e for e in every if e.family == family], names, level, by_family=False) for family in shown
        },
        further_families=len(families) - len(shown),
        checkpoints={
            step: rates([e for found in sweep.values() for e in found.get(step, ())], names, level) for step in steps
        },
        runs={
            seed: {
                step: {name: estimate.value or 0.0 for name, estimate in rates(episodes, names, level).items()}
                for step, episodes in sorted(found.items())
            }
            for seed, found in sorted(sweep.items())
        },
        success=success(list(selected.values()), names, metric, level),
        moves=moves(base, list(selected.values())),
    )


def rates(episodes: Episodes, names: Sequence[str], level: float, by_family: bool = True) -> dict[str, Estimate]:
    """Return the share of episodes with each scheme: mean over problems with an interval of coverage ``level``.

    Lost episodes are left out.  If ``by_family``, families vary independently; otherwise (within a family) problems do.
    """
    groups = by_problem(episodes)
    families = {problem: found[0].family if by_family else problem for problem, found in groups.items()}
    return {
        name: over_problems({p: [_share(found, name)] for p, found in groups.items()}, families, level, _SHARE)
        for name in names
        if groups
    }


def success(teams: Iterable[Episodes], names: Sequence[str], metric: str, level: float) -> tuple[Success, ...]:
    """Compare episodes with a scheme and without it, within problems and teams; only where some show both."""
    differences: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    families: dict[str, str] = {}
    for episodes in teams:
        for problem, found in by_problem(episodes).items():
            families[problem] = found[0].family
            for name in names:
                without, with_it = (
                    values_of([e for e in found if (name in _schemes(e)) is shown], metric) for shown in (False, True)
                )
                if with_it and without:
                    difference = float(np.mean(with_it) - np.mean(without))
                    differences[name].setdefault(problem, []).append(difference)
    results = []
    for name, by_name in differences.items():
        if by_name:
            clusters = encode([families[problem] for problem in by_name])
            means = [float(np.mean(values)) for values in by_name.values()]
            results.append(Success(name, len(by_name), paired(means, clusters, level)))
    adjusted = holm([result.test.p for result in results])
    return tuple(replace(result, p_adjusted=p) for result, p in zip(results, adjusted, strict=True))


def moves(base: Episodes, teams: Sequence[Episodes]) -> dict[tuple[str, str], float]:
    """Return the share of episodes by what the base and a trained team show on the same problem and draw.

    Shares are averaged over teams; they sum to 1.  Episodes that either side lost are left out.
    """
    before = {(e.problem, e.sample): label(e) for e in base if e.reward is not None}
    parts = []
    for episodes in teams:
        pairs = Counter(
            (before[e.problem, e.sample], label(e))
            for e in episodes
            if e.reward is not None and (e.problem, e.sample) in before
        )
        if pairs:
            parts.append({pair: count / pairs.total() for pair, count in pairs.items()})
    every = {pair for part in parts for pair in part}
    found = {pair: sum(part.get(pair, 0.0) for part in parts) / len(parts) for pair in every}
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def label(episode: EpisodeRecord) -> str:
    """Return the schemes of an episode as one name."""
    return " + ".join(sorted(_schemes(episode))) or NO_SCHEME


def _schemes(episode: EpisodeRecord) -> Sequence[str]:
    return tuple(episode.details.get("schemes", ()))


def _share(episodes: Episodes, name: str) -> float:
    return sum(name in _schemes(episode) for episode in episodes) / len(episodes)
