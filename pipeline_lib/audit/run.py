"""The entry point of the audit: it runs the environment's examiner, adds the checks of the base policy, and concludes.

Is there a signal for the base policy, and does it point towards the wanted outcome?  Whether training collapses depends
on the base policy: a reward with a degenerate maximum may harm one and not another.  So the real base policy plays some
groups before training.

Do the problems need a team at all?  One agent plays the same problems as the untrained team, in two ways.

An agent of the team *alone* has the team's weights, prompts and random draws, and the environment's stub in place of
what the others write.  So how well the base follows a format is the same on both sides.  The *single agent* is the
baseline of the chain: one agent with a prompt of its own, which is told everything.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from pipeline_lib.audit.examiner import Examiner, Progress
from pipeline_lib.audit.result import AuditResult, Check, Status, conclude, describe_reward, reward_digest
from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.environment_api.registry import find
from pipeline_lib.storage import digest

if TYPE_CHECKING:
    from pipeline_lib.play.experience import Experience


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Played:
    """Episodes of the base policy; arrays of shape (groups, G), NaN where an episode got no reward."""

    rewards: Floats  #: reward of each whole episode
    metrics: dict[str, Floats]  #: the last turn's metrics by name

    @classmethod
    def of(cls, experience: Experience, group_size: int) -> Played:
        """Return the episodes of groups of ``group_size``; metrics are those of the last turn that has any."""
        rewards: list[float] = []
        last: list[Mapping[str, float]] = []
        for episode in experience.episodes():
            total = 0.0
            for decision in episode:
                total += float("nan") if decision.reward is None else decision.reward
            rewards.append(total)
            last.append(next((decision.metrics for decision in reversed(episode) if decision.metrics), {}))
        names = sorted({name for row in last for name in row})
        shape = (-1, group_size)
        metrics = {name: np.array([row.get(name, np.nan) for row in last]).reshape(shape) for name in names}
        return cls(np.array(rewards).reshape(shape), metrics)


def preflight(played: Played, wanted: str, words: str, idle: Sequence[str]) -> list[Check]:
    """Check what the base policy would learn.

    Args:
        played: episodes of the base policy.
        wanted: the metric that the reward should increase.
        words: that metric in words.
        idle: metrics that measure doing nothing; a reward for these leads to collapse.

    Returns:
        ``base_signal``: FAIL if no group has any variance of reward, WARN if few have; ``base_alignment``: FAIL if
        reward falls with what is wanted, WARN if they hardly go together; ``base_<metric>`` for each idle metric: FAIL
        if reward rises with it while what is wanted does not.
    """
    if np.isnan(played.rewards).all():
        sentence = f"All {played.rewards.size} episodes of the base policy were lost: none got a reward."
        mend = "find out why the sandbox or the environment failed, and run the audit again."
        return [Check("base_signal", Status.FAIL, sentence, {"groups": len(played.rewards)}, mend)]
    checks = [_signal(played), _alignment(played, wanted, words)]
    return checks + [_idleness(played, wanted, words, name) for name in idle if name in played.metrics]


def within(first: Floats, second: Floats) -> float | None:
    """Return the correlation of two quantities within groups (group means removed), or None if one never varies."""
    usable = ~(np.isnan(first) | np.isnan(second))
    a, b = _centred(first, usable), _centred(second, usable)
    spread = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum() / spread) if spread > 1e-12 else None


def _centred(values: Floats, usable: npt.NDArray[np.bool_]) -> Floats:
    known = np.where(usable, values, 0.0)
    means = known.sum(axis=1) / np.maximum(usable.sum(axis=1), 1)
    return np.where(usable, values - means[:, None], 0.0)


def _signal(played: Played) -> Check:
    spread = np.array([np.ptp(row[~np.isnan(row)]) if (~np.isnan(row)).any() else 0.0 for row in played.rewards])
    flat = float((spread <= 1e-9).mean())
    numbers = {"flat_share": flat, "groups": len(spread), "mean_reward": float(np.nanmean(played.rewards))}
    if flat == 1.0:
        return Check(
            "base_signal",
            Status.FAIL,
            f"All {len(spread)} groups of the base policy earn the same: no gradient.",
            numbers,
            "start from a base that does some of the task, or pay for steps towards it.",
        )
    status = Status.WARN if flat > 0.8 else Status.PASS
    return Check(
        "base_signal",
        status,
        f"{flat:.0%} of the base policy's groups have no variance of reward, so nothing can be learned from them.",
        numbers,
    )


def _alignment(played: Played, wanted: str, words: str) -> Check:
    if wanted not in played.metrics:
        return Check("base_alignment", Status.WARN, f"The base policy's episodes say nothing of {words}.")
    found = within(played.rewards, played.metrics[wanted])
    mean = float(np.nanmean(played.metrics[wanted]))
    numbers = {"correlation": found, "mean": mean}
    if found is None:
        return Check(
            "base_alignment",
            Status.WARN,
            f"Within its groups the base policy never differs in {words} (mean {mean:.2f}), or always earns the same.",
            numbers,
        )
    noise = 2 / np.sqrt(played.rewards.size)
    if found < -noise:
        status, verb = Status.FAIL, "falls"
    else:
        status, verb = (Status.WARN, "hardly rises") if found < 0.2 else (Status.PASS, "rises")
    sentence = f"Within the base policy's groups reward {verb} with {words} (correlation {found:.2f})."
    mend = f"pay more for {words}, less for what the base policy does instead." if status is Status.FAIL else ""
    return Check("base_alignment", status, sentence, numbers, mend)


def _idleness(played: Played, wanted: str, words: str, idle: str) -> Check:
    paid = within(played.rewards, played.metrics[idle])
    costs = within(played.metrics[wanted], played.metrics[idle])
    numbers = {"reward": paid, wanted: costs}
    noise = 2 / np.sqrt(played.rewards.size)
    if paid is not None and paid > max(noise, 0.1) and (costs is None or costs < noise):
        return Check(
            f"base_{idle}",
            Status.FAIL,
            f"The base policy earns more the higher its {idle} (correlation {paid:.2f}), and {words} gains nothing "
            "from it: training starts towards doing nothing.",
            numbers,
            f"do not pay for {idle}.",
        )
    return Check(f"base_{idle}", Status.PASS, f"The base policy is not paid for its {idle}.", numbers)


#: One agent does as well if the lower limit of its difference from the team is above minus this share.
MARGIN = 0.05

_NAME = "cooperative_structure"


@dataclass(frozen=True, slots=True)
class OneAgent:
    """Groups of one untrained agent instead of the team, on the same problems as the team."""

    alone: Mapping[str, Played]  #: of each agent of the team alone, by name
    single: Played  #: of the single agent
    #: The agents of the team are told different things (`Environment.divided`), so the single agent is told more than
    #: any of them.
    divided: bool


@dataclass(frozen=True, slots=True)
class _Difference:
    """One agent minus the team, with the means of both and the 95 % t interval over problems."""

    one: float
    team: float
    estimate: float
    low: float
    high: float
    problems: int

    def __str__(self) -> str:
        return f"{self.one:.2f}, difference from the team {self.estimate:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def cooperative_structure(team: Played, one: OneAgent, wanted: str, words: str) -> Check | None:
    """Compare one agent with a team, all untrained.

    If the team's information is divided, the comparison with the single agent is shown and not judged: it would only
    say how much the information is worth.

    Args:
        team: groups of the team, one per problem.
        one: groups of one agent.
        wanted: the metric that the reward should stand for, in [0, 1].
        words: that metric in words.

    Returns:
        ``cooperative_structure``: WARN if the lower limit of the 95 % t interval over problems of a judged difference,
        one agent minus team, is above -`MARGIN`, unless none does more than `MARGIN` of the task; None without the
        metric, or with fewer than two problems.
    """
    lone = {
        agent: found for agent, played in one.alone.items() if (found := _compare(played, team, wanted)) is not None
    }
    other = _compare(one.single, team, wanted)
    if not lone or other is None:
        return None
    agent, best = max(lone.items(), key=lambda item: item[1].estimate)
    judged = [best] if one.divided else [best, other]
    numbers = {
        "team": best.team,
        "problems": best.problems,
        "divided": one.divided,
        **{f"alone_{name}": _numbers(found) for name, found in lone.items()},
        "single": _numbers(other),
    }
    shown = (
        f"Before training, {words} on {best.problems} problems (95 % intervals): the team {best.team:.2f}; {agent}, "
        f"the best of its agents alone, with a stub in place of the others, {best}; a single agent that is told "
        f"everything {other}."
    )
    if max(best.team, *(found.one for found in judged)) <= MARGIN:
        return Check(_NAME, Status.PASS, f"{shown} All do too little to be compared.", numbers)
    equal = [
        name
        for name, found in (("an agent alone", best), ("the single agent", other))
        if found in judged and found.low > -MARGIN
    ]
    if equal:
        who = f"{' and '.join(equal)} {'do' if len(equal) > 1 else 'does'}"
        return Check(
            _NAME,
            Status.WARN,
            f"{shown} So {who} as well as the team: the problems may not need one.",
            numbers,
            "take problems that need several agents, or give each agent information of its own; otherwise keep the "
            "trained single agent (seeds.single_agent), and claim no more than the verdict's comparison with it.",
        )
    if all(found.high < 0 for found in judged):
        follows = " So the team does more than one agent with no more information than an agent of the team has."
    else:
        follows = " So it is not shown that one agent does as well as the team, nor that it does worse."
    if one.divided:
        follows += (
            " The single agent is not judged: it is told what no agent of the team is told, and has another prompt, "
            "which the base may follow better or worse."
        )
    return Check(_NAME, Status.PASS, shown + follows, numbers)


def _compare(one: Played, team: Played, wanted: str) -> _Difference | None:
    """Return the difference over the problems that both played, or None if there are fewer than two."""
    if wanted not in one.metrics or wanted not in team.metrics:
        return None
    means = [_means(played.metrics[wanted]) for played in (one, team)]
    both = ~np.isnan(means[0] - means[1])
    count = int(both.sum())
    if count < 2:
        return None
    first, second = (mean[both] for mean in means)
    differences = first - second
    half = float(stats.t.ppf(0.975, count - 1) * differences.std(ddof=1) / np.sqrt(count))
    estimate = float(differences.mean())
    return _Difference(float(first.mean()), float(second.mean()), estimate, estimate - half, estimate + half, count)


def _means(values: Floats) -> Floats:
    """Return the mean of every group, NaN for a group of which every episode was lost."""
    known = ~np.isnan(values)
    counts = known.sum(axis=1)
    return np.where(counts > 0, np.where(known, values, 0.0).sum(axis=1) / np.maximum(counts, 1), np.nan)


def _numbers(found: _Difference) -> dict[str, float]:
    return {"mean": found.one, "difference": found.estimate, "low": found.low, "high": found.high}


def audit(
    environment_section: Any,
    environment: Environment[Any, Any],
    problems: Sequence[Any],
    play_base: Callable[[Environment[Any, Any]], Played] | None = None,
    progress: Progress | None = None,
    seed: int = 0,
    play_one: Callable[[], OneAgent] | None = None,
) -> AuditResult:
    """Audit a reward on some training problems, before training.

    ``environment_section`` is for the record.  ``play_base`` plays the base policy in an environment; None leaves out
    the checks of the base policy.  ``play_one`` plays one agent instead of the base team on the same problems; None if
    there is no such form.  ``progress`` is called as ``progress(done, total, text)``.  ValueError if there are no
    problems.
    """
    if not problems:
        raise ValueError("the audit needs at least one training problem")
    started = time.perf_counter()
    report = progress or (lambda done, total, text: None)
    examiner: Examiner = find(environment_section.kind).audit()
    base: list[Check] = []
    if play_base is not None:
        played = play_base(examiner.watched(environment, problems))
        base = preflight(played, examiner.wanted, examiner.words, examiner.idle)
    beside: list[Check] = []
    if play_base is not None and play_one is not None:
        structure = cooperative_structure(played, play_one(), examiner.wanted, examiner.words)
        beside = [structure] if structure is not None else []
    rungs, checks = examiner.examine(environment, problems, seed, report)
    checks += _base_checks(base, checks) + beside
    reward = describe_reward(environment_section)
    status, summary = conclude(checks, reward)
    return AuditResult(
        status=status,
        environment=environment_section.kind,
        reward=reward,
        summary=summary,
        checks=tuple(checks),
        ladder=tuple(rungs),
        identity={
            "environment": digest(environment_section.model_dump(mode="json")),
            "reward": reward_digest(environment_section),
            "problems": digest(sorted(problem.id for problem in problems)),
            "base_policy": bool(base),
            "seed": seed,
        },
        seconds=time.perf_counter() - started,
    )


def _base_checks(base: Sequence[Check], checks: Sequence[Check]) -> list[Check]:
    """Return the checks of the base policy; most failures become warnings if training in miniature ended well.

    Correlations within the base's groups predict its first update only.  Training in miniature from the base's own
    behaviour (``dry_run_base``) shows where all updates lead, so it takes precedence.
    """
    if not any(check.name == "dry_run_base" and check.status is Status.PASS for check in checks):
        return list(base)
    return [
        dataclasses.replace(check, status=Status.WARN)
        if check.status is Status.FAIL and check.name != "base_signal"
        else check
        for check in base
    ]
