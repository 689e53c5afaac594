"""A centralised critic beside the group's mean: credit against the truth, noise of the gradient, and learning.

    python -m benchmarks.credit_critic measure --presets coding philosophers
    python -m benchmarks.credit_critic learn --presets coding --seeds 0 1 2 [--arms mean critic counterfactual]
    python -m benchmarks.credit_critic page

Coding is short with a dense reward (one turn), philosophers long with a sparse one (a table of five, 24 turns);
settings are those of the presets.  ``measure`` freezes the weights, of the base and after `TRAINED` updates: the critic
learns from `LEARNED` updates' experience, then every baseline is given the same further `MEASURED` ones.  The true
advantage of first actions is that of ``train.fidelity_every``.  ``learn`` trains with as many executions in every
update; an arm ``critic/2`` has groups of two, in four times as many problems, and ``critic:none`` the scale ``none``.
Results are added to ``benchmarks/results/credit_critic.json``; ``page`` writes the table.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.credit_learning import remember
from pipeline_lib import storage
from pipeline_lib.credit.plans import Aligned
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.locks import locked
from pipeline_lib.play import Experience, Player, groups
from pipeline_lib.policies.computing import cpu_numerics, threads_for
from pipeline_lib.policies.load import load_team
from pipeline_lib.policies.warm_start import build_base
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from pipeline_lib.rollouts.engine import Sampling
from pipeline_lib.rollouts.make import make_engine
from pipeline_lib.settings import Params, load_params
from pipeline_lib.settings.train import AdvantageSettings, TrainSettings
from pipeline_lib.training.advantages import returns_to_go
from pipeline_lib.training.batch import actions_of, build, normaliser
from pipeline_lib.training.credit import credit, credit_by_critic
from pipeline_lib.training.critic import Critic, explained_variance
from pipeline_lib.training.fidelity import agreement, true_advantages
from pipeline_lib.training.learners import make_learners
from pipeline_lib.training.trainer import train
from pipeline_lib.training.update import Learner, _pass

OUTPUT = Path("benchmarks/results/credit_critic")
TRAINED, LEARNED, MEASURED = 10, 10, 24
#: States in which first actions are compared with the truth, and fresh episodes with each action and without it.
STATES, PARTNERS = 12, 32
UPDATES = {"coding": 25, "philosophers": 80}
#: Metric, and value that is to be reached as the mean of `WINDOW` updates.
ENOUGH = {"coding": ("metrics/tests_passed", 0.9), "philosophers": ("metrics/meals_share", 0.8)}
WINDOW = 3
BASELINES = ("leave_one_out", "critic", "counterfactual")
KEPT = (
    *("reward/mean", "metrics/tests_passed", "metrics/meals_share", "metrics/deadlock", "executions/count"),
    *("critic/explained_variance", "time/critic_s", "time/step_s"),
)


def main() -> None:
    """Measure, learn or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("measure", "learn", "page"))
    parser.add_argument("--presets", nargs="+", default=["coding", "philosophers"], choices=UPDATES)
    parser.add_argument("--arms", nargs="+", default=["mean", "critic", "counterfactual"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parsed = parser.parse_args()
    for preset in parsed.presets if parsed.part != "page" else ():
        with tempfile.TemporaryDirectory() as temporary:
            setting = Setting(preset, Path(temporary))
            if parsed.part == "measure":
                for stage, updates in (("base", 0), (f"{TRAINED} updates", TRAINED)):
                    add(["measured", preset, stage], setting.measure(updates))
            else:
                for seed in parsed.seeds:
                    for arm in parsed.arms:
                        add(["learned", preset, arm, str(seed)], setting.learn(arm, seed, UPDATES[preset]))
    if parsed.part == "page":
        text = page(storage.read_json(OUTPUT.with_suffix(".json")))
        storage.write_text(OUTPUT.with_suffix(".md"), text)
        print(text)


def add(place: Sequence[str], found: Any) -> None:
    """Add a result to the file, which several runs may share."""
    with locked(Path(tempfile.gettempdir(), "credit_critic.lock")):
        report = storage.read_json(OUTPUT.with_suffix(".json")) if OUTPUT.with_suffix(".json").exists() else {}
        section = report
        for name in place[:-1]:
            section = section.setdefault(name, {})
        section[place[-1]] = found
        storage.write_json(OUTPUT.with_suffix(".json"), report)
    print(*place, "done", flush=True)


class Setting:
    """A preset with its problems and base."""

    def __init__(self, preset: str, folder: Path) -> None:
        (folder / "params.yaml").write_text("{}\n" if preset == "coding" else f"environment: {preset}\n")
        self.params: Params = load_params(folder / "params.yaml", Path("conf"))
        self.folder = folder
        self.known: dict[Any, Any] = {}
        prepare(self.params.environment.kind, self.params.problems, folder / "problems")
        build_base(self.params.policy, folder / "problems", folder / "base")
        self.problems = load_split(folder / "problems", "train")
        self.sampling = Sampling(max_new_tokens=self.params.rollouts.max_new_tokens)

    @contextlib.contextmanager
    def _open(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yield environment, base team and engine."""
        with (
            contextlib.closing(make_environment(self.params.environment, self.params.sandbox)) as environment,
            contextlib.closing(make_engine(self.params.rollouts)) as engine,
        ):
            if self.params.environment.kind == "coding":
                remember(environment, self.known)
            agents = max((environment.agents(problem) for problem in self.problems), key=len)
            yield environment, load_team(self.params.policy, self.folder / "base", agents), engine

    def _settings(self, **changes: Any) -> TrainSettings:
        return TrainSettings.model_validate(self.params.train.model_dump() | changes)

    def learn(self, arm: str, seed: int, updates: int) -> list[dict[str, float]]:
        """Train with a baseline, and return what is kept of every update."""
        with self._open() as (environment, team, engine):
            return self._train(arm, seed, updates, environment, team, engine)

    def _train(self, arm: str, seed: int, updates: int, environment: Any, team: Any, engine: Any) -> Any:
        named, _, scale = arm.partition(":")
        baseline, _, size = named.partition("/")
        train_section = self.params.train
        executions = train_section.group_size * train_section.problems_per_step
        group = int(size or train_section.group_size)
        settings = self._settings(
            checkpoint_every=updates,
            steps=updates,
            group_size=group,
            problems_per_step=executions // group,
            advantage={"baseline": baseline, "scale": scale or train_section.advantage.scale},
        )
        rows: list[dict[str, float]] = []
        with tempfile.TemporaryDirectory() as scratch:
            train(
                settings=settings,
                sampling=self.sampling,
                environment=environment,
                team=team,
                engine=engine,
                problems=self.problems,
                seed=seed,
                scratch=Path(scratch),
                on_step=lambda step, metrics: rows.append({k: round(metrics[k], 5) for k in KEPT if k in metrics}),
            )
        return rows

    def measure(self, updates: int) -> dict[str, Any]:
        """Return measures of every baseline at the weights after some updates with the group's mean."""
        settings = self._settings(advantage={})
        with self._open() as (environment, team, engine):
            readers = {name: self._reader(name, environment, team) for name in BASELINES[1:]}
            if updates:
                self._train("mean", 0, updates, environment, team, engine)
            engine.load(team.policies)
            player = Player(environment, team, engine, self.sampling, tree=settings.groups == "tree", observed=True)
            learners = make_learners(settings, self.sampling, team, None, None)
            with cpu_numerics(threads_for(team)):
                return self._measure(settings, player, learners, readers)

    def _reader(self, baseline: str, environment: Any, team: Any) -> Critic:
        size = max(len(environment.agents(problem)) for problem in self.problems)
        rule = AdvantageSettings.model_validate({"baseline": baseline})
        return Critic(rule, next(iter(team.policies.values())), size, 0)

    def _measure(
        self, settings: TrainSettings, player: Player, learners: Sequence[Learner], critics: dict[str, Critic]
    ) -> dict[str, Any]:
        rng = np.random.default_rng(0)
        gradients: dict[str, list[torch.Tensor]] = {}
        explained: dict[str, list[float]] = {}
        found: dict[str, Any] = {}
        for step in range(1, LEARNED + MEASURED + 1):
            drawn = rng.permutation(len(self.problems))[: settings.problems_per_step]
            roots = groups([self.problems[i] for i in drawn], settings.group_size, 1234, step)
            experience = player.play(roots)
            teams = {root.problem.id: player.environment.agents(root.problem) for root in roots}
            given = [d.reward for d in experience.decisions], [d.parent for d in experience.decisions]
            returns = returns_to_go(*given, settings.discount)
            seen = {name: critic.read(experience.decisions, teams) for name, critic in critics.items()}
            if step <= LEARNED:
                for name, critic in critics.items():
                    critic.learn(seen[name], returns, [d.weight for d in experience.decisions])
                continue
            compared = {}
            for name in BASELINES:
                rule = AdvantageSettings.model_validate({"baseline": name})
                if name in critics:
                    baselines = critics[name].baselines(seen[name])
                    compared[name], _ = credit_by_critic(experience, returns, baselines, rule)
                else:
                    compared[name], _ = credit(experience, returns, Aligned(), rule)
                gradients.setdefault(name, []).append(gradient(learners, experience, compared[name], settings))
                explained.setdefault(name, []).append(explained_by(experience, returns, compared[name]))
            if step == LEARNED + 1:
                found |= {"fidelity": fidelity(player, roots, experience, compared, settings.discount)}
        return found | {"explained": {n: float(np.mean(v)) for n, v in explained.items()}, "noise": noise(gradients)}


def explained_by(experience: Experience, returns: Sequence[float | None], compared: Sequence[Sequence[Any]]) -> float:
    """Return the share of the variance of returns that a baseline explains, over all actions."""
    rows = zip(experience.decisions, returns, compared, strict=True)
    pairs = [(value, a, d.weight) for d, value, row in rows if value is not None for a in row]
    values, left, weights = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))
    return explained_variance(values, values - left, weights) or 0.0


def gradient(
    learners: Sequence[Learner], experience: Experience, compared: Sequence[Any], settings: TrainSettings
) -> torch.Tensor:
    """Return the gradient of an update for all policies, one after the other; weights stay as they are."""
    parts = []
    actions = actions_of(experience, compared, settings.loss.mask_truncated)
    for learner in learners:
        rows, truncated = actions[learner.policy.name]
        batch = build(rows, normaliser(rows, settings.loss.normalisation), settings.loss, truncated)
        first = {name: torch.zeros(len(batch.behaviour)) for name in ("old", "reference")}
        _pass(learner, batch, first, settings.loss, 0, lambda: None)
        parts += [part.flatten().clone() for part in learner.optimiser.gradients()]
        learner.optimiser.zero()
    return torch.cat(parts).double()


def noise(gradients: dict[str, list[torch.Tensor]]) -> dict[str, dict[str, float]]:
    """Return by baseline the variance of an update's gradient, relative to the squared mean gradient of all of them.

    All baselines have the same expected gradient, so its square is estimated from all, without its own noise.
    """
    means = {name: torch.stack(rows).mean(0) for name, rows in gradients.items()}
    variances = {name: float(torch.stack(rows).var(0).sum()) for name, rows in gradients.items()}
    count = len(next(iter(gradients.values())))
    squared = np.mean([float(m @ m) - variances[name] / count for name, m in means.items()])
    found = {}
    for name, rows in gradients.items():
        # Jackknife error of the ratio to the first baseline, over updates.
        ratios = []
        for left_out in range(count):
            kept = [i for i in range(count) if i != left_out]
            own, first = (torch.stack([g[i] for i in kept]).var(0).sum() for g in (rows, gradients[BASELINES[0]]))
            ratios.append(float(own / first))
        error = float(np.sqrt((count - 1) * np.var(ratios)))
        ratio = variances[name] / variances[BASELINES[0]]
        found[name] = {"variance": variances[name] / float(squared), "ratio": ratio, "ratio_error": error}
    return found


def fidelity(
    player: Player, roots: Sequence[Any], experience: Experience, compared: dict[str, Any], discount: float
) -> dict[str, dict[str, float]]:
    """Return how near each baseline's advantages of first actions are to the truth, averaged over agents and states."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in compared}
    first = 0
    for root in roots[:STATES]:
        decisions = experience.decisions[first : first + root.n]
        names: tuple[str, ...] = player.environment.agents(root.problem)
        said: dict[int, list[str]] = {}
        for decision in decisions:
            for name, action in zip(decision.agents, decision.actions, strict=True):
                said.setdefault(names.index(name), []).append(action.text)
        truth, _ = true_advantages(player, root, said, discount, (0, 0), PARTNERS)
        for name, rows in compared.items():
            for agent in said:
                pairs = []
                for decision, row in zip(decisions, rows[first : first + root.n], strict=True):
                    at = decision.agents.index(names[agent])
                    text = decision.actions[at].text
                    if row[at] is not None and (agent, text) in truth:
                        pairs.append((row[at], truth[agent, text].mean))
                known = agreement(np.array([a for a, _ in pairs]), np.array([b for _, b in pairs]))
                for what in ("correlation", "sign", "error"):
                    if (value := getattr(known, what)) is not None:
                        found[name].setdefault(what, []).append(value)
        first += root.n
    return {name: {what: float(np.mean(values)) for what, values in own.items()} for name, own in found.items()}


def page(report: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [
        "# A centralised critic beside the group's mean",
        "",
        "Written by `python -m benchmarks.credit_critic page`; what it means: [docs/credit.md](../../docs/credit.md#a-"
        "centralised-critic).",
        "Coding: one turn, dense reward, G = 8. Philosophers: 24 turns, sparse reward, groups of 8 episodes. On two",
        "busy cores; arms with fewer seeds were not run for more.",
        "",
        "## At frozen weights",
        "",
        f"The critic learned from {LEARNED} updates, and was compared on {MEASURED} others. Explained: share of the",
        "variance of returns that the baseline explains (leave_one_out: the mean of seven others). Fidelity is of",
        f"first actions with their true advantages, in {STATES} states ({PARTNERS} fresh episodes with each action and",
        "without it); variance is that of an update's gradient, relative to its squared mean.",
        "",
        "| task, weights | baseline | explained | correlation | sign | squared error | variance | ratio to the first |",
        "|---|---|" + "---:|" * 6,
    ]
    for preset, stages in report.get("measured", {}).items():
        for stage, found in stages.items():
            for name in BASELINES:
                near, spread = found["fidelity"][name], found["noise"][name]
                values = [found["explained"][name], *(near.get(what) for what in ("correlation", "sign", "error"))]
                cells = ["" if v is None else f"{v:.4f}" if abs(v) < 0.01 else f"{v:.2f}" for v in values]
                ratio = f"{spread['ratio']:.2f} ± {spread['ratio_error']:.2f}"
                row = [f"{preset}, {stage}", name, *cells, f"{spread['variance']:.2f}", ratio]
                lines.append(f"| {' | '.join(row)} |")
    lines += ["", "## Learning at equal executions", ""]
    for preset, arms in report.get("learned", {}).items():
        metric, bound = ENOUGH[preset]
        lines += [
            f"### {preset}",
            "",
            f"Updates until {metric.partition('/')[2]} was {bound} over {WINDOW} updates, by seed; middle: the metric",
            "in the second quarter of the run; end: mean of the last five updates; time: median share of the critic in",
            "an update's seconds.",
            "",
            "| baseline | updates | mean | metric, middle | metric, end | explained, end | time |",
            "|---|---|" + "---:|" * 5,
        ]
        for arm, runs in arms.items():
            reached = [until([row[metric] for row in rows], bound) for rows in runs.values()]
            by_seed = ", ".join(f"{seed}: {r or '-'}" for seed, r in zip(runs, reached, strict=True))
            mean = f"{np.mean([r for r in reached if r]):.1f}" if all(reached) else "not by all"

            def last(name: str, runs: Any = runs) -> str:
                known = [row[name] for rows in runs.values() for row in rows[-5:] if name in row]
                return f"{np.mean(known):.3f}" if known else ""

            quarter = UPDATES[preset] // 4
            middle = np.mean([row[metric] for rows in runs.values() for row in rows[quarter : 2 * quarter]])
            shares = [row.get("time/critic_s", 0.0) / row["time/step_s"] for rows in runs.values() for row in rows]
            cells = [f"{middle:.3f}", last(metric), last("critic/explained_variance"), f"{np.median(shares):.0%}"]
            lines.append(f"| {arm} | {by_seed} | {mean} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def until(values: Sequence[float], bound: float) -> int | None:
    """Return the update at which the mean of `WINDOW` values reaches a bound; None if it never does."""
    ends = range(WINDOW, len(values) + 1)
    return next((end for end in ends if np.mean(values[end - WINDOW : end]) >= bound), None)


if __name__ == "__main__":
    main()
