"""An experiment: settings, and a folder for everything that is made from them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline_lib.assembly.memory_check import check_memory
from pipeline_lib.environment_api.registry import find, task_class
from pipeline_lib.identity.code import code_of, named_code, references_of
from pipeline_lib.identity.content import DigestCache
from pipeline_lib.identity.syntax import SyntaxCache
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import MANIFEST, load_manifest, load_split
from pipeline_lib.sandbox.executor import make_executor
from pipeline_lib.settings import SettingsError
from pipeline_lib.settings.base import result_settings
from pipeline_lib.settings.compose import compose
from pipeline_lib.storage import digest
from symposium.arguments import check_type
from symposium.showing import progress

if TYPE_CHECKING:
    from pipeline_lib.environment_api.metrics import Metrics
    from pipeline_lib.environment_api.task import Task
    from pipeline_lib.settings import Params

#: A section of the settings: a preset's name, or values by key.
Section = str | Mapping[str, Any]

_PACKAGE = Path(__file__).parent
#: A wheel holds a copy of the presets (setup.py); in a checkout they are where people edit them.
PRESETS = _PACKAGE / "project/conf" if (_PACKAGE / "project").is_dir() else _PACKAGE.parent / "conf"

#: Sections that an experiment takes beside the environment.
SECTIONS = ("problems", "policy", "rollouts", "sandbox", "audit", "train", "evaluate", "verdict")

#: The code by which everything in an experiment's folder is made.
_MAKERS = (
    "pipeline_lib.assembly.auditing", "pipeline_lib.assembly.training", "pipeline_lib.policies.warm_start",
    "pipeline_lib.problems.splits",
)  # fmt: skip
#: Settings count by their values; the others only remember and name.
_NO_MAKERS = ("pipeline_lib.settings", "pipeline_lib.identity", "pipeline_lib.tracking", "pipeline_lib.locks")

#: What an argument must be, in messages.
AN_EXPERIMENT = "an experiment, such as symposium.Experiment('lab', 'philosophers')"

#: Digest of an environment's code when this process first asked for it, by kind.
_imported: dict[str, str] = {}


class Experiment:
    """An environment, its settings, and a folder for problems, base policy, audit and checkpoints.

    Everything is made when it is first needed.  Its name in the folder contains a digest of everything that it depends
    on: settings, the source of the environment, the library.  So a repeated call returns at once, and after an edit
    nothing old is used.

    Args:
        folder: made if it does not exist; several experiments may share it.
        environment: the name of a preset in conf/environment, a kind (``"my_package.my_task"``), a subclass of
            `TextTask` or `pipeline_lib.environment_api.task.Task` from your own module, or a whole section.
        sections: further sections of the settings, each the name of a preset, or the values that differ from the
            default: ``problems`` (their source), ``policy`` (the language models), ``rollouts`` (how actions are
            sampled), ``sandbox`` (where untrusted programs run), ``audit`` (of the reward; ``override`` gives a reason
            to train on a reward that it fails), ``train`` (the update), ``evaluate`` (metric, samples, rule of
            selection), ``verdict`` (significance level, margin, resamples).

    Attributes:
        folder: the folder.
        params: all settings, checked and immutable.

    Raises:
        TypeError: the folder is no path, or there is no such section.
        SettingsError: a setting is wrong (all mistakes are listed at once), or the environment has no source file.
    """

    folder: Path
    params: Params

    def __init__(
        self,
        folder: str | Path,
        environment: Section | type[Task],
        **sections: Section,
    ) -> None:
        if unknown := [name for name in sections if name not in SECTIONS]:
            raise TypeError(f"{unknown[0]} is no section of the settings; accepted: {', '.join(SECTIONS)}")
        check_type("folder", folder, (str, Path), "a path")
        self.folder = Path(folder)
        self.params = compose({"environment": _environment(environment), **sections}, PRESETS)
        self._memory = SyntaxCache(self.folder / "syntax.json")
        self._depends_on()  # raises now if something is wrong with the environment's source

    def __repr__(self) -> str:
        return f"Experiment({str(self.folder)!r}, {self.params.environment.kind!r})"

    @property
    def metrics(self) -> Metrics:
        """What the environment measures, by name."""
        return task_class(self.params.environment.kind)().metrics()

    def problems(self, split: str = "validation") -> list[Any]:
        """Return the problems of a split other than ``test``, which only the chain may look at.

        Raises:
            ValueError: the split is ``test``.
            ProblemsError: there is no such split, or the problems cannot be made.
        """
        if split == "test":
            raise ValueError(
                "only the chain (`symposium run`) looks at the test split, and git counts every look; use the "
                "validation split here"
            )
        return load_split(self.problems_folder(), split)

    def problems_folder(self) -> Path:
        """Return the folder of the prepared problems; makes it if necessary."""
        folder = self.place("problems", environment=("kind",), problems=())
        if not (folder / MANIFEST).exists():
            sandbox = self.params.sandbox
            prepare(self.params.environment.kind, self.params.problems, folder, lambda: make_executor(sandbox))
        return folder

    def base_folder(self) -> Path:
        """Return the folder of the base policy from which every agent starts; makes it if necessary."""
        reads: dict[str, tuple[str, ...]] = {"environment": ("kind",), "problems": (), "policy": ()}
        if find(self.params.environment.kind).has_later_turns(self.params):
            reads |= {"environment": (), "sandbox": ()}
        folder = self.place("base", **reads)
        if not folder.exists():
            # It loads torch, which other calls can do without.
            from pipeline_lib.policies.warm_start import build_base, later_turns

            check_memory(self.params, "warm_start", self.problems("train"), folder)
            with progress("base policy") as report:
                build_base(self.params.policy, self.problems_folder(), folder, report, later_turns(self.params))
        return folder

    def place(self, what: str, /, *more: Any, **sections: tuple[str, ...]) -> Path:
        """Return a path in the folder whose name contains a digest of settings and code.

        Args:
            what: first part of the name.
            more: further JSON-like values for the digest.
            sections: by name of the section, the keys for the digest; empty: all that can change a result.
        """
        values: dict[str, Any] = {}
        for name, keys in sections.items():
            section = getattr(self.params, name)
            known = result_settings(section)
            values[name] = {key: getattr(section, key) for key in keys} or known
        return self.folder / f"{what}-{digest([values, self._depends_on(), *more])[:16]}"

    def test_hashes(self) -> frozenset[str]:
        """Return the content hashes of the test problems, by which `evaluate` recognises and refuses them."""
        return frozenset(load_manifest(self.problems_folder())["splits"]["test"]["hashes"])

    def _depends_on(self) -> dict[str, Any]:
        """Return the code and files that everything here depends on.

        Raises:
            SettingsError: the environment's source is not there, or was edited after this process imported it.
        """
        environment = self.params.environment
        task = task_class(environment.kind)
        try:
            own = named_code(f"{task.__module__}:{task.__qualname__}", memory=self._memory)
            sections = (environment, self.params.policy)
            named = [references_of(section, DigestCache(), self._memory) for section in sections]
        except ValueError as error:
            raise SettingsError(f"environment: {error}") from None
        if _imported.setdefault(environment.kind, own.digest) != own.digest:
            raise SettingsError(
                f"environment: the source of {environment.kind} was edited after this process had imported it; restart "
                "the process (in a notebook: the kernel), so that the code that runs is that of the file"
            )
        library = code_of(*_MAKERS, without=_NO_MAKERS, memory=self._memory)
        return {
            "environment": own.to_json(),
            "named": [[one.code, one.content] for one in named],
            "library": library.to_json(),
        }


def _environment(given: Section | type[Task]) -> Section:
    """Return the section, or the name of its preset."""
    if inspect.isclass(given):
        if given.__module__ == "__main__":
            raise SettingsError(
                f"environment: {given.__name__} has no source file, and results depend on its source. "
                "Write the class into a file (in a notebook: %%writefile my_task.py) and import it"
            )
        return {"kind": f"{given.__module__}:{given.__qualname__}"}
    if isinstance(given, str) and not (PRESETS / "environment" / f"{given}.yaml").exists():
        return {"kind": given}
    assert not inspect.isclass(given)
    return given
