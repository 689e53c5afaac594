"""A trained team as folders that others load, with a card written from its verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers.utils.logging import disable_progress_bar

from pipeline_lib.assembly.teams import base_team
from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.environment_api.registry import find
from pipeline_lib.environments.make import make_environment
from pipeline_lib.policies.base import base_folder
from pipeline_lib.policies.export import ADAPTER, Form, export_team
from pipeline_lib.problems.splits import load_manifest, load_split
from pipeline_lib.report.model_card import Exported, model_card
from pipeline_lib.settings import Params
from pipeline_lib.storage import read_json, write_text
from pipeline_lib.training.checkpoint_folders import step_folder
from pipeline_lib.training.checkpoints import load_checkpoint
from tasks.experiment.arms import BASE, PROBLEMS, RESULTS, TEAM, environment_section, trained_folder
from tasks.runtime.arguments import ArgumentError

_FULL = """
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "{agent}"
model = AutoModelForCausalLM.from_pretrained(folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
"""
_ADAPTER = """
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

folder = "{agent}"
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained("{base}"), folder)
tokenizer = AutoTokenizer.from_pretrained(folder)
"""
_ASK = """
prompt = {prompt!r}
tokens = tokenizer(prompt, return_tensors="pt")
answer = model.generate(**tokens, max_new_tokens={length}, do_sample=False)
print(tokenizer.decode(answer[0, tokens["input_ids"].shape[1]:], skip_special_tokens=True))
"""


class ExportError(RuntimeError):
    """There is nothing to export; the message says what is missing."""


def export(params: Params, output: Path, seed: int, step: int, form: Form) -> dict[str, str]:
    """Write a checkpoint of the team and its card to ``output``; return what each agent's folder holds.

    Raises:
        ArgumentError: there is no such checkpoint, or the folder exists.
        ExportError: there is no verdict.
        PolicyError: the checkpoint is of another team.
    """
    tested = (RESULTS / "selection.json").exists() and _is_selected(seed, step)
    checkpoint = step_folder(trained_folder(TEAM, seed), step)
    if not checkpoint.is_dir():
        raise ArgumentError(f"{checkpoint}: there is no such checkpoint")
    if not (RESULTS / "verdict.json").exists():
        raise ExportError(f"{RESULTS / 'verdict.json'}: no verdict yet, and the card is written from it")
    if output.exists():
        raise ArgumentError(f"{output} exists already; give another folder, or remove it")
    disable_progress_bar()  # of loading and writing weights, which takes a moment
    problems = load_split(PROBLEMS, "validation")
    environment = make_environment(environment_section(params, TEAM), params.sandbox)
    try:
        state = environment.start(problems[0])
        prompts = {name: environment.observe(state, i) for i, name in enumerate(environment.agents(problems[0]))}
        team = base_team(params, BASE, environment, problems)
    finally:
        environment.close()
    load_checkpoint(checkpoint, team)
    embedded = params.policy.kind == "embedded"
    holds = export_team(team, list(prompts), output, form, BASE if embedded else None)
    prompts = {agent: prompts[agent] for agent in holds}
    names = {agent: _base_of(params, number, embedded) for number, agent in enumerate(prompts)}
    first = next(iter(prompts))
    beside = base_folder(params.policy, Path("base"), first).as_posix()
    snippet = (_ADAPTER if holds[first] == ADAPTER else _FULL).format(agent=first, base=names[first] or beside)
    asked = _ASK.format(prompt=_as_prompted(team, first, prompts[first]), length=params.rollouts.max_new_tokens)
    verdict = read_json(RESULTS / "verdict.json")
    card = model_card(
        Exported(params.environment.kind, seed, step, holds, prompts, names[first], snippet + asked, tested),
        verdict,
        load_manifest(PROBLEMS),
        describe(verdict["metric"], find(params.environment.kind).metrics()),
    )
    write_text(output / "README.md", card)
    write_text(output / "load.py", (snippet + asked).lstrip())
    return holds


def _is_selected(seed: int, step: int) -> bool:
    row = read_json(RESULTS / "selection.json")[TEAM]["seeds"].get(str(seed))
    return bool(row) and row["step"] == step


def _base_of(params: Any, number: int, embedded: bool) -> str:
    if embedded:
        return ""
    models = params.policy.models
    return str(models[number if len(models) > 1 else 0])


def _as_prompted(team: Any, agent: str, observation: str) -> str:
    """Return the text that the agent's policy is really given: in the chat template, where it has one."""
    policy = team.policy_of(agent)
    if not policy.chat:
        return observation
    return str(policy.tokenizer.decode(list(policy.encode(observation))))
