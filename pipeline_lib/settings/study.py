"""A study: one experiment repeated at every level of one or two factors, and its comparisons.

Its file is ``conf/studies/<name>.yaml``.  Every cell (a level of each factor) is ``params.yaml`` with some settings
changed; all cells are trained with the same seeds, and each is compared with the reference cell.
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import Field, StrictInt, ValidationError, model_validator

from pipeline_lib.settings.base import Section
from pipeline_lib.settings.load import Changes, changed_params
from pipeline_lib.settings.mistakes import SettingsError, explain
from pipeline_lib.settings.params import Params
from pipeline_lib.settings.reading import read_mapping
from pipeline_lib.settings.train import GREATEST_SEED

MIN_SEEDS = 3


class StudySettings(Section):
    """The content of ``conf/studies/<name>.yaml``."""

    question: str = Field(min_length=1, description="the question of the study, as a sentence")
    changes: Changes = Field({}, description="settings of all cells, in addition to params.yaml")
    factors: dict[str, dict[str, Changes]] = Field(
        min_length=1, max_length=2, description="the levels of each factor, and the settings of each level"
    )
    against: dict[str, str] = Field(
        description="a level of each factor: the reference cell, with which all others are compared"
    )
    seeds: tuple[StrictInt, ...] = Field(
        (0, 1, 2, 3, 4), min_length=MIN_SEEDS, description="training seeds of every cell, at least three"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if unknown := sorted(set(self.against) - set(self.factors)):
            raise ValueError(f"against: there is no factor {', '.join(unknown)}; factors: {', '.join(self.factors)}")
        for factor, levels in self.factors.items():
            if not all(level.strip() for level in levels):
                raise ValueError(f"a level of the factor '{factor}' has no name, by which sentences could call it")
            if len(levels) < 2:
                raise ValueError(f"the factor '{factor}' needs at least two levels")
            if self.against.get(factor) not in levels:
                raise ValueError(
                    f"against: '{factor}' must be one of {', '.join(levels)}, got {self.against.get(factor)!r}"
                )
        changed = [self.changes, *(level for levels in self.factors.values() for level in levels.values())]
        if any(key in ("seeds", "seeds.train") for changes in changed for key in changes):
            raise ValueError("seeds.train cannot be changed here: all cells have the training seeds of the key seeds")
        if len(cells_of(self)) < math.prod(map(len, self.factors.values())):
            raise ValueError("two cells have the same name, which is made of their levels; rename a level")
        if len(set(self.seeds)) != len(self.seeds) or not all(0 <= seed <= GREATEST_SEED for seed in self.seeds):
            raise ValueError(f"seeds {list(self.seeds)} must be different, and from 0 to {GREATEST_SEED}")
        return self


def reference_of(study: StudySettings) -> str:
    """Return the name of the cell that all others are compared with."""
    return cell_name(study.against[factor] for factor in study.factors)


def cells_of(study: StudySettings) -> dict[str, dict[str, str]]:
    """Return the cells by name, each as a level by factor, in the order of the file."""
    return {
        cell_name(levels): dict(zip(study.factors, levels, strict=True))
        for levels in itertools.product(*study.factors.values())
    }


def changes_of(study: StudySettings, cell: str) -> Changes:
    """Return the settings of a cell: those of all cells, then those of its levels, in order of factors."""
    levels = cells_of(study)[cell]
    return {**study.changes, **{k: v for f, level in levels.items() for k, v in study.factors[f][level].items()}}


def cell_name(levels: Iterable[str]) -> str:
    """Return the name of a cell: its levels."""
    return ", ".join(levels)


def load_study(path: Path) -> StudySettings:
    """Read a study.

    Raises:
        SettingsError: the file is missing, is not YAML, or is not a valid study; the message lists all mistakes.
    """
    if not path.exists():
        there = ", ".join(sorted(str(p) for p in path.parent.glob("*.yaml"))) or "none"
        raise SettingsError(f"{path}: there is no such study; studies there: {there}")
    content = read_mapping(path)
    try:
        return StudySettings.model_validate({**content, **_as_text(content, path)})
    except ValidationError as error:
        raise SettingsError(explain(error, content, path, {}, StudySettings)) from None


def cell_params(study: StudySettings, cell: str, file: Path, conf: Path) -> Params:
    """Return the settings of a cell: ``params.yaml`` with the study's and the cell's changes.

    Args:
        study: the study.
        cell: name of the cell.
        file: ``params.yaml``.
        conf: folder of presets.

    Raises:
        SettingsError: a change names an unknown setting, or the settings contradict each other.
    """
    seeds = {"seeds.train": list(study.seeds), "seeds.single_agent": []}
    return changed_params({**seeds, **changes_of(study, cell)}, file, conf, f"the cell '{cell}'")


def _as_text(content: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return factors and ``against`` with levels as text, because YAML reads an unquoted 8 as a number."""
    found: dict[str, Any] = {}
    if isinstance(factors := content.get("factors"), dict):
        found["factors"] = {
            str(factor): _with_text_keys(levels, f"{path}: factors.{factor}") if isinstance(levels, dict) else levels
            for factor, levels in factors.items()
        }
    if isinstance(against := content.get("against"), dict):
        found["against"] = {str(factor): str(level) for factor, level in against.items()}
    return found


def _with_text_keys(levels: dict[Any, Any], where: str) -> dict[str, Any]:
    names = [str(level) for level in levels]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SettingsError(f"{where}: the level {twice[0]!r} is written twice")
    return dict(zip(names, levels.values(), strict=True))
