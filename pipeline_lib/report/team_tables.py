"""Tables about the team: turns, contributions of agents, schemes of cooperation, costs, and a summary for a paper."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline_lib.evaluation.effort import CHOICES
from pipeline_lib.evaluation.episodes import BASE_GUEST
from pipeline_lib.evaluation.results import Estimate
from pipeline_lib.evaluation.verdict import BASE, SINGLE_AGENT
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.results import difference_cells
from pipeline_lib.report.style import CYCLE, MARKERS, Figure, Table, figure, metric_axis, percent
from pipeline_lib.report.text import count, sentence_only

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def turns(data: ReportData) -> Table:
    """Return one row per team and turn from the second on; empty if no episode had several attempts."""
    rows: list[list[Any]] = []
    for team, gains in data.turn_gains.items():
        for found in gains:
            before, gain = data.info.text(found.before), difference_cells(found.gain.to_json(), data.info)
            shares = (_percent(share) for share in (found.repaired, found.broken))
            rows.append([team, found.turn, found.episodes, before, *gain, f"{found.reward:+.2f}", *shares])
    columns = ("team", "turn", "episodes", "turn before", "gain", "interval", "reward", "repaired", "broken")
    return Table(columns, rows)


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"


def agents(data: ReportData) -> Table:
    """Return one row per agent; empty where nothing was measured."""
    exact = any(found.shapley for found in data.contributions)
    rows = [
        [c.agent, *(_cells(data, c.shapley) if exact else ()), *_cells(data, c.removal), c.problems]
        for c in data.contributions
    ]
    shapley = ("Shapley value", "its interval") if exact else ()
    return Table(("agent", *shapley, "lost without it", "interval", "problems"), rows)


def subteams(data: ReportData) -> Table:
    """Return the mean of the primary metric for every subteam that was played, the whole team first."""
    rows = [[" + ".join(present) or "nobody", data.info.text(mean)] for present, mean in data.subteams.items()]
    return Table(("who acts", data.info.label), rows)


def cross_play(data: ReportData) -> Table:
    """Return a row for each trained team and agent, and a column for each run that this agent comes from."""
    cells = {(cell.seed, cell.agent, str(cell.run)): cell.mean for cell in data.cross_play}
    runs = sorted({str(cell.run) for cell in data.cross_play if cell.agent}, key=lambda run: (run == BASE_GUEST, run))
    rows = []
    for seed, agent in dict.fromkeys((cell.seed, cell.agent) for cell in data.cross_play if cell.agent):
        means = [cells.get((seed, "" if run == str(seed) else agent, run)) for run in runs]
        rows.append([f"run {seed}, {agent}", *(_with_interval(data, found) for found in means)])
    names = ["of the base" if run == BASE_GUEST else f"of run {run}" for run in runs]
    return Table(("team, agent", *names), rows)


def _with_interval(data: ReportData, found: Estimate | None) -> str | None:
    if found is None or found.value is None:
        return None
    if found.low is None or found.high is None:
        return data.info.text(found.value)
    low, high = data.info.text(found.low), data.info.text(found.high)
    return f"{data.info.text(found.value)} ({low.removesuffix(' %')} to {high.removesuffix(' %')})"


def _cells(data: ReportData, estimate: Estimate | None) -> tuple[Any, Any]:
    if estimate is None or estimate.value is None:
        return None, None
    return difference_cells(estimate.to_json(), data.info)


#: Rows of the table of changes.
MOST_MOVES = 12


def over_checkpoints(data: ReportData) -> Figure | None:
    """Draw the share of validation episodes with each scheme over the checkpoints; bands are intervals."""
    use = data.cooperation
    if use is None or len(use.checkpoints) < 2:
        return None
    names, steps = use.names, sorted(use.checkpoints)

    def paint(canvas: Canvas, narrow: bool) -> None:
        axes = canvas.subplots()
        for number, name in enumerate(names):
            colour, marker = CYCLE[number % len(CYCLE)], MARKERS[number % len(MARKERS)]
            rates = [use.checkpoints[step][name] for step in steps]
            means, lows, highs = np.array([(rate.value, rate.low, rate.high) for rate in rates], dtype=float).T
            axes.plot(steps, means, color=colour, marker=marker, markersize=4, label=_spaced(name), zorder=3)
            axes.fill_between(steps, lows, highs, color=colour, alpha=0.10, lw=0)
            for by_step in use.runs.values():
                own = [row.get(name, math.nan) for row in by_step.values()]
                axes.plot(list(by_step), own, color=colour, linewidth=0.7, alpha=0.5)
        percent(axes.yaxis)
        axes.set_ylim(-0.02, 1.02)
        axes.locator_params(axis="x", integer=True)
        axes.set_xlabel("training step of the checkpoint")
        axes.set_ylabel("share of episodes")
        canvas.legend(loc="outside upper left", ncols=2 if narrow else 4)

    return figure(
        "schemes",
        "Cooperation schemes over training",
        "Share of validation episodes with each scheme; an episode may show several. Thick line: all training runs "
        "together, with its interval over problems; thin lines: each run.",
        paint,
        by_checkpoint(data),
    )


def by_checkpoint(data: ReportData) -> Table:
    """Return share and interval of every scheme at every checkpoint, then the share of each training run."""
    use = data.cooperation
    if use is None:
        return Table(("step",), [])
    columns = [f"{name}{part}" for name in use.names for part in ("", " low", " high")]
    columns += [f"{name} seed {seed}" for seed in use.runs for name in use.names]
    rows: list[list[Any]] = []
    for step, found in sorted(use.checkpoints.items()):
        shown = [found.get(name) for name in use.names]
        own: list[Any] = [limit for one in shown for limit in ((one.value, one.low, one.high) if one else (None,) * 3)]
        own += [by_step.get(step, {}).get(name) for by_step in use.runs.values() for name in use.names]
        rows.append([step, *own])
    return Table(("step", *columns), rows)


def by_team(data: ReportData) -> Table:
    """Return the share of test episodes with each scheme, by team, with intervals."""
    return _rates(data, "team", data.cooperation.teams if data.cooperation else {})


def by_family(data: ReportData) -> Table:
    """Return the same for the selected teams, by family of problems."""
    return _rates(data, "family", data.cooperation.families if data.cooperation else {})


def success(data: ReportData) -> Table:
    """Return by how much episodes with a scheme do better than others of the same team on the same problem."""
    rows = [
        [_spaced(one.scheme), *difference_cells(one.test.to_json(), data.info), one.p_adjusted, one.problems]
        for one in (data.cooperation.success if data.cooperation else ())
    ]
    return Table(("scheme", "with it", "interval", "p (Holm)", "problems"), rows)


def moves(data: ReportData) -> Table:
    """Return what the base and the selected team show on the same problem and draw, the most frequent first."""
    found = list(data.cooperation.moves.items())[:MOST_MOVES] if data.cooperation else []
    rows = [[_spaced(before), _spaced(after), f"{100 * share:.1f} %"] for (before, after), share in found]
    return Table(("before (base)", "after (selected)", "episodes"), rows)


def _rates(data: ReportData, what: str, found: Mapping[str, Mapping[str, Estimate]]) -> Table:
    names = data.cooperation.names if data.cooperation else ()
    rows = [[name, *(_text(row.get(scheme)) for scheme in names)] for name, row in found.items()]
    return Table((what, *map(_spaced, names)), rows)


def _text(estimate: Estimate | None) -> str | None:
    if estimate is None or estimate.value is None:
        return None
    share = f"{100 * estimate.value:.0f} %"
    if estimate.low is None or estimate.high is None:
        return share
    return f"{share} ({100 * estimate.low:.0f} to {100 * estimate.high:.0f})"


def _spaced(name: str) -> str:
    return name.replace("_", " ")


COLUMNS = {"seconds": "seconds", "tokens": "tokens sampled"}


def costs(data: ReportData) -> Table:
    """Return seconds and tokens of every part, as far as known."""
    known = {key: title for key, title in COLUMNS.items() if any(key in cost for cost in data.costs.values())}
    rows = [
        [name, *(round(float(cost[key]), 1) if key in cost else None for key in known)]
        for name, cost in data.costs.items()
    ]
    return Table(("part", *known.values()), rows)


def one_episode(data: ReportData) -> Table:
    """Return what one test episode costs each team: tokens sampled, read, and sampled one after another."""
    teams = data.verdict["teams"]
    columns = {"prompt_tokens": "prompt tokens", "critical_path_tokens": "tokens one after another"}
    columns |= {"requests": "requests", "tool_calls": "tool calls", "unread": "prompts too long to answer"}
    columns |= {"cut_turns": "earlier turns cut from prompts"}

    def shown(key: str) -> bool:
        values = [team["details"][key] for team in teams.values() if key in team["details"]]
        return any(values) if key in ("tool_calls", "unread", "cut_turns") else bool(values)

    def cell(value: float | None, key: str) -> float | None:
        return None if value is None else round(value, 3 if key == "unread" else 1)

    known = {key: title for key, title in columns.items() if shown(key)}
    rows: list[list[Any]] = [
        [name, round(team["tokens"], 1), *(cell(team["details"].get(key), key) for key in known)]
        for name, team in teams.items()
    ]
    return Table(("team", "tokens sampled", *known.values()), rows)


def attempts(data: ReportData) -> Table:
    """Return what teams and single agents come to with more and more attempts; empty if that was not asked for."""
    rows = []
    for name, points in (data.verdict.get("equal_effort") or {"curves": {}})["curves"].items():
        for point in points:
            seconds = None if point["seconds"] is None else round(point["seconds"], 3)
            costs = [round(point["tokens"], 1), round(point["sequential_tokens"], 1), seconds]
            rows.append([name, point["attempts"], _with_interval(data, Estimate(**point["value"])), *costs])
    columns = ("team", "attempts", data.info.label, "tokens sampled", "tokens one after another", "seconds")
    return Table(columns, rows)


def quality_for_effort(data: ReportData) -> Figure | None:
    """Draw the primary metric against tokens and seconds of a problem, of teams and single agents."""
    table = attempts(data)
    if not table.rows:
        return None
    effort = data.verdict["equal_effort"]
    axes_of = {"tokens": "tokens sampled for a problem", "seconds": "seconds for a problem"}

    def paint(canvas: Canvas, narrow: bool) -> None:
        grid = canvas.subplots(2 if narrow else 1, 1 if narrow else 2, sharey=True, squeeze=False)
        panels = list(grid.flat)
        for panel, (cost, title) in zip(panels, axes_of.items(), strict=True):
            for number, (name, points) in enumerate(effort["curves"].items()):
                colour, marker = CYCLE[number % len(CYCLE)], MARKERS[number % len(MARKERS)]
                at = [point[cost] for point in points]
                if None in at:  # the seconds of the untrained are not known
                    continue
                means = [point["value"]["value"] for point in points]
                panel.plot(at, means, color=colour, marker=marker, markersize=4, linewidth=1.4, label=name, zorder=3)
                limits = [(x, p["value"]["low"], p["value"]["high"]) for x, p in zip(at, points, strict=True)]
                if all(low is not None for _, low, _ in limits):
                    xs, lows, highs = zip(*limits, strict=True)
                    panel.fill_between(xs, lows, highs, color=colour, alpha=0.10, lw=0)
            panel.set_xlabel(title)
            panel.set_xlim(left=0)
            panel.locator_params(axis="x", nbins=5)
        for panel in panels if narrow else panels[:1]:
            metric_axis(panel.yaxis, data.info)
        handles, labels = panels[0].get_legend_handles_labels()
        canvas.legend(handles, labels, loc="outside upper left", ncols=2 if narrow else 4)

    return figure(
        "effort",
        "Does the team pay? Quality for the effort of a problem",
        f"Each mark is one attempt more; what is kept is {CHOICES[effort['by']]}. Bands are intervals over problems. "
        "Seconds are those of this machine, which played many episodes side by side; those of untrained teams, with "
        "which the test starts, are not known.",
        paint,
        table,
        (3.4, 5.6),
    )


#: What to cite; the software as CITATION.cff has it.
BIBTEX = """@article{liu2025magrpo,
  title         = {{LLM} Collaboration With Multi-Agent Reinforcement Learning},
  author        = {Liu, Shuo and Liang, Zeyu and Lyu, Xueguang and Amato, Christopher},
  year          = {2025},
  eprint        = {2508.04652v1},
  archivePrefix = {arXiv}
}

@software{symposium,
  title   = {Symposium: teams of language models, trained together and tested honestly},
  author  = {{The Symposium maintainers}},
  version = {0.1.0},
  license = {Apache-2.0}
}
"""


def for_a_paper(data: ReportData) -> list[tuple[str, str]]:
    """Return the parts of the summary: a heading and plain text each; nothing without plan, settings and subject."""
    if data.plan is None or data.about is None or "train" not in data.settings:
        return []
    return [
        ("Method", _method(data, data.plan, data.settings["train"])),
        ("Result", "\n\n".join(_results(data.verdict["comparisons"]))),
        ("BibTeX", BIBTEX),
    ]


def _results(comparisons: Mapping[str, Any]) -> list[str]:
    """Return the sentences of the comparisons in the headline."""
    return [sentence_only(comparisons[name]["sentence"]) for name in (BASE, SINGLE_AGENT) if name in comparisons]


def _otherwise(train: Any) -> Iterator[str]:
    """Yield how what the agents were trained on differs from the paper, in sentences."""
    if own := train.get("individual_reward", 0.0):
        shares = f" ({100 * own:g} %) and on the joint reward ({100 * (1 - own):g} %)" if own < 1 else ""
        yield f"Each agent was trained on what it earned by itself{shares}."
    if (baseline := train.get("advantage", {}).get("baseline")) in ("critic", "counterfactual"):
        yield f"The baseline of the advantages was learned ({baseline})."
    if (credit := train.get("credit", {}).get("kind", "aligned")) != "aligned":
        yield f"Each agent had advantages of its own (credit plan {credit})."


def _method(data: ReportData, plan: Any, train: Any) -> str:
    assert data.about is not None  # the caller looked
    about, primary = data.about, data.verdict["comparisons"][BASE]
    corrected = primary["family_size"]
    seeds = count(len(plan["training_seeds"]), "training run")
    correction = f", corrected for {corrected} comparisons ({plan['correction'].capitalize()})" if corrected > 1 else ""
    fixed = "; this rule and the whole evaluation were fixed before any checkpoint was evaluated"
    sentences = [
        f"A team was trained with MAGRPO (Liu et al., 2025) by Symposium 0.1.0 on the task {about.task}: "
        f"{about.model}; {about.problems}; {seeds} of up to {count(train['steps'], 'update')}.",
        *_otherwise(train),
        f"Checkpoints were evaluated on {plan['validation_size']} validation problems with "
        f"{count(plan['validation_samples'], 'episode')} each, and in each run one was selected by the rule "
        f'"{plan["select"].replace("_", " ")}"{fixed if data.verdict["plan"]["followed"] else ""}.',
        f"The selected checkpoints were tested on {plan['test_size']} held-out problems with "
        f"{count(plan['test_samples'], 'episode')} each, with the same random draws for all teams.",
        f"The difference to the untrained base was tested over {primary['families']} families of problems "
        f"({primary['difference']['method']}), two-sided, at alpha = {plan['alpha']:g}{correction}.",
        *([data.verdict["lines"][2]] if data.verdict["caveats"] else []),
    ]
    return " ".join(sentences)
