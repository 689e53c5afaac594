"""Which stages does a change to each module make stale?  ``python -m benchmarks.staleness`` prints tables.

Every module is really changed, one after the other, in a copy of the project: first by a comment and a docstring, which
must make nothing stale, then by a constant.  ``--sample N`` tries N modules only.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("pipeline_lib", "tasks", "flows")


def modules(root: Path) -> list[str]:
    """Return the files of all modules, relative to the project."""
    return sorted(path.relative_to(root).as_posix() for package in PACKAGES for path in (root / package).rglob("*.py"))


def stale_by_module(names: Iterable[str]) -> dict[str, list[str]]:
    """Change each module in a copy of the project; return the stages that a changed constant makes stale.

    Raises:
        AssertionError: a comment or a docstring made a stage stale.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "project"
        for part in (*PACKAGES, "conf"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("params.yaml", "dvc.yaml"):
            shutil.copy(ROOT / part, copy / part)
        done = subprocess.run(
            # -P: the folder of this script, whose modules have names that others use too, is not searched.
            [sys.executable, "-P", str(Path(__file__).resolve()), "--inside", *names],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "SYMPOSIUM_HOME": str(copy / ".symposium")},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def _inside(names: Iterable[str]) -> dict[str, list[str]]:
    from tasks.identity.stages import STAGES, identity_of

    def identities() -> dict[str, object]:
        return {stage: identity_of(stage) for stage in STAGES}

    before = identities()
    found = {}
    for name in names:
        path = Path(name)
        text = path.read_text(encoding="utf-8")
        path.write_text(_other_words(text) + "\n# another comment\n", encoding="utf-8")
        assert identities() == before, f"{name}: a comment or a docstring makes a stage stale"
        path.write_text(text + "\n_ANOTHER = 1\n", encoding="utf-8")
        after = identities()
        found[name] = [stage for stage in STAGES if after[stage] != before[stage]]
        path.write_text(text, encoding="utf-8")
    return found


def _other_words(text: str) -> str:
    """Return a module's text with another docstring."""
    tree = ast.parse(text)
    read = any(isinstance(node, ast.Attribute) and node.attr == "__doc__" for node in ast.walk(tree))
    if read or ast.get_docstring(tree) is None:  # docstrings that are read are code
        return text
    lines = text.splitlines(keepends=True)
    return '"""Said in other words."""\n' + "".join(lines[tree.body[0].end_lineno or 0 :])


def table(found: Mapping[str, list[str]]) -> str:
    """Return two tables: how many modules each stage depends on, and every module with its stages."""
    counts = Counter(stage for stages in found.values() for stage in stages)
    lines = ["| stage | modules that make it stale |\n|---|---|\n"]
    lines += [f"| {stage} | {count} of {len(found)} |\n" for stage, count in counts.items()]
    lines.append("\n| modules | make stale |\n|---|---|\n")
    groups: dict[str, list[str]] = {}
    for name, stages in found.items():
        groups.setdefault(", ".join(stages) or "nothing", []).append(name)
    for stale, names in sorted(groups.items(), key=lambda item: item[1][0]):
        lines.append(f"| {', '.join(f'`{name}`' for name in names)} | {stale} |\n")
    return "".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.staleness", description=__doc__)
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="only N modules")
    parser.add_argument("--inside", nargs="+", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        print(json.dumps(_inside(asked.inside)))
        return
    names = modules(ROOT)
    print(table(stale_by_module(random.sample(names, asked.sample) if asked.sample else names)))


if __name__ == "__main__":
    main()
