"""Trying costs nothing: presets for trying and studies share no test problem with the settings that one reports."""

import functools
from typing import Any

import pytest

from pipeline_lib.environment_api.registry import find
from pipeline_lib.settings import Params, SettingsError
from pipeline_lib.settings.load import changed_params
from pipeline_lib.settings.reading import read_mapping
from tests.flows.project import ROOT

STUDIES = {path.stem: read_mapping(path)["changes"] for path in sorted((ROOT / "conf/studies").glob("*.yaml"))}
TRYING: dict[str, dict[str, Any]] = {
    "coding-quick": {"environment": "coding-quick"},
    "modules, as its page tries it": {"environment": "modules", "problems.seed": 1, "problems.apart_from": 7},
    **STUDIES,
}


def params(changes: dict[str, Any]) -> Params:
    return changed_params(changes, ROOT / "params.yaml", ROOT / "conf", "the test")


@functools.cache
def contents(problems: Any) -> dict[str, set[str]]:
    """Return what the problems of each split contain, with few training problems, which do not matter here."""
    few = problems.model_copy(update={"sizes": problems.sizes.model_copy(update={"train": 8})})
    task = find("modules" if problems.kind == "module_graphs" else "coding")
    return {split: {problem.content_hash for problem in found} for split, found in task.make_problems(few).items()}


@pytest.mark.parametrize("name", list(TRYING))
def test_trying_sees_no_test_problem_of_the_settings_that_one_reports(name: str) -> None:
    here = params(TRYING[name]).problems
    seen = contents(here)["test"] | contents(here)["validation"]
    modules = {"environment": "modules"}
    for reported in [modules] if "modules" in name else [{}, {"environment": "coding-two-turns"}]:
        assert seen and not seen & contents(params(reported).problems)["test"]


def test_a_split_apart_from_itself_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"problems: apart_from \(7\) is the seed itself; give seed another number"):
        params({"problems.apart_from": 7})
