"""A summary to paste into a paper: what was done, what came of it, what to cite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline_lib.evaluation.verdict import BASE, SINGLE_AGENT
from pipeline_lib.report.data import ReportData
from pipeline_lib.report.text import count, sentence_only

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
