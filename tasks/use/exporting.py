"""A trained team as folders that transformers and peft load without this project, with a card from its verdict.

    <folder>/<agent>/    weights (all of them, or a LoRA adapter), tokenizer, configuration
    <folder>/base/       the model below the adapters, if it is not published elsewhere (the embedded one)

Agents that a server plays have no folder.  Weights are safetensors.  An adapter's configuration names its base, so that
``PeftModel`` finds it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from peft import PeftModel
from transformers.utils.logging import disable_progress_bar

from pipeline_lib.assembly.teams import base_team
from pipeline_lib.environment_api.environment import Environment
from pipeline_lib.environment_api.metrics import describe
from pipeline_lib.environment_api.registry import find
from pipeline_lib.environment_kit.make import make_environment
from pipeline_lib.evaluation.episodes import summarise_team
from pipeline_lib.policies.base import base_folder
from pipeline_lib.policies.lora import is_adapted, merged_state
from pipeline_lib.policies.model_config import SUFFIX
from pipeline_lib.policies.policy import Policy, Team, is_remote
from pipeline_lib.policies.pretrained import limits_attention
from pipeline_lib.policies.sizes import models_of
from pipeline_lib.problems.splits import load_manifest, load_split
from pipeline_lib.report.page import render
from pipeline_lib.settings import Params
from pipeline_lib.storage import new_folder, read_json, write_json, write_text
from pipeline_lib.training.checkpoint_folders import step_folder
from pipeline_lib.training.checkpoints import load_checkpoint
from tasks.experiment.arms import BASE, PROBLEMS, RESULTS, TEAM, environment_section, trained_folder
from tasks.experiment.episode_files import read_episodes, tested_file
from tasks.identity.files import refuse_stale

Form = Literal["trained", "merged"]
FULL, ADAPTER = "full weights", "adapter"


def export_team(
    team: Team, agents: Sequence[str], folder: Path, form: Form = "trained", base: Path | None = None
) -> dict[str, str]:
    """Write one folder per agent; agents that share a policy get the same weights.

    Args:
        team: the team with its weights.
        agents: their names.
        folder: an empty one, or one that is made.
        form: ``trained``: what training changed, all weights or the adapter; ``merged``: adapters become part of the
            weights.
        base: folder of the adapters' base, which is copied; None if the base is on a hub.

    Returns:
        By agent with a folder, its content: ``full weights`` or ``adapter``.
    """
    holds = {}
    for agent in agents:
        policy = team.policy_of(agent)
        if is_remote(policy):
            continue
        holds[agent] = _write(policy, folder / agent, form)
        if holds[agent] == ADAPTER and base is not None:
            if not (folder / "base").exists():
                shutil.copytree(base, folder / "base", ignore=shutil.ignore_patterns("base.json"))
            config = folder / agent / "adapter_config.json"
            own = f"base/agents/{agent}" if (base / "agents" / agent).is_dir() else "base"
            write_json(config, {**read_json(config), "base_model_name_or_path": own})
    return holds


def _write(policy: Policy, place: Path, form: Form) -> str:
    model: Any = policy.model
    if is_adapted(policy) and form == "merged":
        model.get_base_model().save_pretrained(place, state_dict=merged_state(policy))
        held = FULL
    elif is_adapted(policy):
        assert isinstance(model, PeftModel)
        model.save_pretrained(str(place))
        (place / "README.md").unlink(missing_ok=True)  # peft's template
        held = ADAPTER
    else:
        model.save_pretrained(place)
        held = FULL
    policy.tokenizer.save_pretrained(place)
    return held


_PROGRAM = """
{imports}

HERE = Path(__file__).resolve().parent
PROMPTS = {prompts}
STOPS = {stops}  # texts that end an answer


def load(agent):
    {load}
    return model, AutoTokenizer.from_pretrained(HERE / agent)


for agent, prompt in PROMPTS.items():
    model, tokenizer = load(agent)
    tokens = tokenizer(prompt, return_tensors="pt")
    answer = model.generate(**tokens, max_new_tokens={length}, do_sample=False)
    text = tokenizer.decode(answer[0, tokens["input_ids"].shape[1] :], skip_special_tokens=True)
    for stop in STOPS:
        text = text.split(stop)[0]
    print(f"--- {{agent}}\\n{{text}}")
"""
_LOCAL = """import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # all files are here
"""
_FULL = "from transformers import AutoModelForCausalLM, AutoTokenizer"
_ADAPTER = f"from peft import PeftModel\n{_FULL}"


class ExportError(RuntimeError):
    """There is nothing to export; the message says what is missing."""


def export(params: Params, output: Path, seed: int, step: int, form: Form) -> dict[str, str]:
    """Write a checkpoint of the team and its card to ``output``; return what each agent's folder holds.

    The folder is there when all of it is written, and not before.

    Raises:
        ExportError: there is no verdict.
        IdentityError: other code or settings than the present ones made them, so the card would say what is not so.
        PolicyError: the checkpoint is of another team.
    """
    selection = RESULTS / "selection.json"
    row = read_json(selection)[TEAM]["seeds"].get(str(seed)) if selection.exists() else None
    tested = row is not None and row["step"] == step
    checkpoint = step_folder(trained_folder(TEAM, seed), step)
    if not (RESULTS / "verdict.json").exists():
        raise ExportError(f"{RESULTS / 'verdict.json'}: no verdict yet, and the card is written from it")
    refuse_stale([(RESULTS / "verdict.json").as_posix(), checkpoint.parent.as_posix()])
    disable_progress_bar()  # of loading and writing weights, which takes a moment
    problems = load_split(PROBLEMS, "validation")  # test problems are for tests
    environment = make_environment(environment_section(params, TEAM), params.sandbox)
    try:
        state = environment.start(problems[0])
        prompts = {name: environment.observe(state, i) for i, name in enumerate(environment.agents(problems[0]))}
        later = told_later(environment)
        team = base_team(params, BASE, environment, problems)
    finally:
        environment.close()
    load_checkpoint(checkpoint, team)
    made_here = params.policy.warm_start is not None
    names = dict(zip(prompts, _bases_of(params, list(prompts)), strict=True))
    if not made_here and not all(map(_is_on_the_hub, names.values())):
        form = "merged"  # elsewhere nobody finds the base by its name
    with new_folder(output) as new:
        holds = export_team(team, list(prompts), new, form, BASE if made_here else None)
        prompts = {agent: prompts[agent] for agent in holds}
        bases = {
            agent: names[agent] or base_folder(params.policy, Path("base"), agent).as_posix()
            for agent in holds
            if holds[agent] == ADAPTER
        }
        program = _program(params, team, prompts, bases, local=made_here or not bases)
        verdict = read_json(RESULTS / "verdict.json")
        first = names[next(iter(prompts))]
        card = render(
            "model_card.md.j2",
            task=params.environment.kind,
            seed=seed,
            step=step,
            holds=holds,
            prompts=prompts,
            fence=fence(prompts.values()),
            later=later,
            base_model=first or ("" if params.policy.kind == "embedded" else params.policy.models[0]),
            program=program,
            tested=tested,
            figure=_own_figure(params, seed) if tested else None,
            verdict=verdict,
            manifest=load_manifest(PROBLEMS),
            info=describe(verdict["metric"], find(params.environment.kind).metrics()),
        )
        write_text(new / "README.md", card)
        write_text(new / "load.py", program)
    return holds


def _program(params: Params, team: Any, prompts: dict[str, str], bases: dict[str, str], local: bool) -> str:
    """Return the program that loads and asks every agent.

    ``prompts`` has, by agent, its observation; ``bases``, by agent with an adapter, the base: a name on the hub, or a
    folder of the export; ``local``: no file is on the hub.
    """
    eager = any(limits_attention(team.policy_of(agent).model.config) for agent in prompts)
    more = ', attn_implementation="eager"' if eager else ""
    if not bases:
        imports, load = _FULL, f"model = AutoModelForCausalLM.from_pretrained(HERE / agent{more})"
    else:
        place = f"HERE / {bases!r}[agent]" if local else f"{bases!r}[agent]"
        imports = _ADAPTER
        load = f"base = AutoModelForCausalLM.from_pretrained({place}{more})\n    "
        load += "model = PeftModel.from_pretrained(base, HERE / agent)"
    return _PROGRAM.format(
        imports=f"{_LOCAL}\n{imports}" if local else f"from pathlib import Path\n\n{imports}",
        prompts={agent: _as_prompted(team, agent, prompt) for agent, prompt in prompts.items()},
        stops=list(dict.fromkeys(stop for agent in prompts for stop in team.policy_of(agent).stop_strings)),
        load=load,
        length=params.rollouts.max_new_tokens,
    ).lstrip()


def fence(texts: Iterable[str]) -> str:
    """Return what Markdown takes as the edge of a block with any of ``texts`` in it: more backticks than they have."""
    return "`" * (1 + max([2, *(len(run) for text in texts for run in re.findall("`+", text))]))


def told_later(environment: Environment[Any, Any]) -> str:
    """Return what agents read later than the card's prompts, for its sentence; empty if they answer once."""
    found = {"in later turns": environment.turns > 1, "after a call of a tool": environment.tool_calls > 0}
    return " and ".join(text for text, there in found.items() if there)


def _own_figure(params: Params, seed: int) -> float:
    """Return the mean of the primary metric in the test episodes of a seed's selected checkpoint."""
    episodes = read_episodes(tested_file(TEAM, "selected", seed))
    summary = summarise_team(episodes, (), find(params.environment.kind).metrics())["overall"]
    return float(summary[params.evaluate.metric])


def _is_on_the_hub(name: str) -> bool:
    return name.count("/") == 1 and not Path(name).exists() and not name.endswith(SUFFIX)


def _bases_of(params: Params, agents: Sequence[str]) -> list[str]:
    """Return the name of each agent's pretrained base, empty for one that the warm start made."""
    if params.policy.kind == "embedded" or params.policy.warm_start is not None:
        return [""] * len(agents)
    return models_of(params.policy, agents)


def _as_prompted(team: Any, agent: str, observation: str) -> str:
    """Return the text that the agent's policy is really given: in the chat template, where it has one."""
    policy = team.policy_of(agent)
    if not policy.chat:
        return observation
    return str(policy.tokenizer.decode(list(policy.encode(observation))))
