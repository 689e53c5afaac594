"""The reference of the settings is of the settings as they are."""

import re
from typing import Any

from pipeline_lib.settings import load_params
from scripts import settings_reference
from tests.flows.project import ROOT


def leaves(value: dict[str, Any], prefix: str = "") -> set[str]:
    """Return the dotted keys of all values that are no sections."""
    found = set()
    for key, inner in value.items():
        found |= leaves(inner, f"{prefix}{key}.") if isinstance(inner, dict) and inner else {f"{prefix}{key}"}
    return found


def test_every_setting_in_force_stands_in_the_reference_with_a_default():
    page = settings_reference.page()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    params = load_params(ROOT / "params.yaml", ROOT / "conf").model_dump(mode="json")
    assert set(sections) == set(params)
    for section, values in params.items():
        told = set(re.findall(r"^\| `([\w.]+)` \| \S", sections[section], re.MULTILINE))
        wanted = {key for key in leaves(values) if key.rpartition(".")[2] != "kind"}
        assert wanted <= told, section
    assert "| `learning_rate` | `" in sections["train"] and "*machine*" in sections["rollouts"]
