"""Draw the two figures of docs/architecture.md from the code: ``python -m scripts.draw_map``; ``--check`` compares.

The packages are drawn in the order of the contracts in pyproject.toml, with an arrow for every import that does not
follow from others; a box has the first sentence of the package's docstring.  The way of a problem
names functions, each with the first sentence of its docstring and its return type.  So a function with another purpose
changes the figure, and a missing function ends this program with an error.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

import grimp

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "figures"

INK, SOFT, LINE, PAPER, PANEL = "#1f2933", "#5b6770", "#9aa5b1", "#ffffff", "#f3f5f7"
SANS, MONO = "font-family='Helvetica, Arial, sans-serif'", "font-family='DejaVu Sans Mono, Menlo, monospace'"

#: Boxes side by side; the rest of a row is drawn below it.
MOST = 5

#: What becomes of a problem: the stage, the word for what it has become, and the function that makes it so.
WAY = (
    ("prepare", "settings", "pipeline_lib.settings.load:load_params"),
    ("prepare", "problems", "pipeline_lib.problems.prepare:prepare"),
    ("train", "prompt", "pipeline_lib.environment_api.environment:Environment.observe"),
    ("train", "token ids", "pipeline_lib.policies.policy:Policy.encode"),
    ("train", "action", "pipeline_lib.rollouts.engine:Engine.generate"),
    ("train", "joint action", "pipeline_lib.protocols.protocol:Protocol.act"),
    ("train", "program", "pipeline_lib.environments.coding.program:build_program"),
    ("train", "verdict of the sandbox", "pipeline_lib.sandbox.executor:Executor.run"),
    ("train", "reward", "pipeline_lib.environment_api.environment:Environment.step"),
    ("train", "experience", "pipeline_lib.play.player:Player.play"),
    ("train", "return", "pipeline_lib.training.advantages:returns_to_go"),
    ("train", "advantage", "pipeline_lib.training.credit:credit"),
    ("train", "batch", "pipeline_lib.training.batch:build"),
    ("train", "gradient and step", "pipeline_lib.training.update:update_policy"),
    ("train", "checkpoint", "pipeline_lib.training.checkpoints:write_checkpoint"),
    ("sweep", "episodes", "pipeline_lib.evaluation.run:evaluate_team"),
    ("select", "selected checkpoint", "pipeline_lib.evaluation.selection:select"),
    ("test, verdict", "verdict of the experiment", "pipeline_lib.evaluation.verdict:summarise_test"),
)


@dataclass
class Drawing:
    """SVG elements, and how large the picture is (pixels)."""

    width: float
    height: float
    elements: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, fill: str = PAPER) -> None:
        """Draw a rectangle."""
        self.elements.append(
            f"<rect x='{x:.0f}' y='{y:.0f}' width='{width:.0f}' height='{height:.0f}' rx='5' fill='{fill}' "
            f"stroke='{LINE}'/>"
        )

    def text(
        self, x: float, y: float, said: str, size: int = 12, fill: str = INK, font: str = SANS, **more: str
    ) -> None:
        """Write a line of text; ``more`` are attributes."""
        attributes = "".join(f" {name.replace('_', '-')}='{value}'" for name, value in more.items())
        self.elements.append(
            f"<text x='{x:.0f}' y='{y:.0f}' font-size='{size}' fill='{fill}' {font}{attributes}>{escape(said)}</text>"
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """Draw an arrow that leaves and arrives upright."""
        bend = max((y2 - y1) / 2, 10)
        path = f"M {x1:.0f} {y1:.0f} C {x1:.0f} {y1 + bend:.0f}, {x2:.0f} {y2 - bend:.0f}, {x2:.0f} {y2 - 5:.0f}"
        self.elements.append(
            f"<path d='{path}' fill='none' stroke='{LINE}' stroke-width='1.3' marker-end='url(#tip)'/>"
        )

    def __str__(self) -> str:
        tip = f"<path d='M0,0 L7,3 L0,6 z' fill='{LINE}'/>"
        head = (
            f"<svg xmlns='http://www.w3.org/2000/svg' width='{self.width:.0f}' height='{self.height:.0f}' "
            f"viewBox='0 0 {self.width:.0f} {self.height:.0f}'>\n"
            f"<defs><marker id='tip' markerWidth='8' markerHeight='8' refX='6' refY='3' orient='auto'>{tip}</marker>"
            f"</defs>\n<rect width='100%' height='100%' fill='{PAPER}'/>\n"
        )
        return head + "\n".join(self.elements) + "\n</svg>\n"


def layers(container: str | None = None) -> list[list[str]]:
    """Return the rows of a package, or of all packages, as the contract has them, from above."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    containers = [container] if container else None
    found = next(one for one in contracts if one["type"] == "layers" and one.get("containers") == containers)
    return [[name.strip() for name in row.split("|")] for row in found["layers"]]


def imports_between(graph: grimp.ImportGraph, packages: Sequence[str]) -> dict[str, set[str]]:
    """Return which packages each imports directly."""
    found: dict[str, set[str]] = {package: set() for package in packages}
    for module in graph.modules:
        for target in graph.find_modules_directly_imported_by(module):
            ours, theirs = (_package(name, packages) for name in (module, target))
            if ours and theirs and ours != theirs:
                found[ours].add(theirs)
    return found


def reduced(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports that others do not imply (the transitive reduction of a graph without circles)."""

    def reach(package: str) -> set[str]:
        return {package}.union(*(reach(other) for other in imports[package]))

    return {
        package: {one for one in others if not any(one in reach(other) for other in others - {one})}
        for package, others in imports.items()
    }


def packages() -> Drawing:
    """Draw the packages with their imports: on the left what orchestrates, on the right the library."""
    library = [
        [f"pipeline_lib.{name}" for name in part]
        for row in layers("pipeline_lib")
        for part in (row[start : start + MOST] for start in range(0, len(row), MOST))
    ]
    roots = [name for row in layers() for name in row]
    upper = [[name] for name in roots if name not in ("tasks", "pipeline_lib")]
    upper += [[f"tasks.{name}" for name in row] for row in layers("tasks")]
    every = [name for row in [*upper, *library] for name in row]
    graph = grimp.build_graph(*roots, cache_dir=None)
    imports = imports_between(graph, every)
    wide, high, gap, left, top = 176, 96, 26, 16, 44
    panel = 2 * (wide + 14) + 14
    columns = max(len(row) for row in library)
    width = 2 * left + panel + 30 + columns * (wide + 14) + 14
    drawing = Drawing(width, top + len(library) * (high + gap) + 14)
    places: dict[str, tuple[float, float]] = {}
    for x, room, rows, title in (
        (left, panel, upper, " -> ".join(roots[:-1])),
        (left + panel + 30, columns * (wide + 14) + 14, library, "pipeline_lib"),
    ):
        drawing.box(x, 10, room, top + len(rows) * (high + gap) - 10, PANEL)
        drawing.text(x + 14, 31, title, 14, font_weight="bold")
        for number, row in enumerate(rows):
            start = x + (room - len(row) * wide - (len(row) - 1) * 14) / 2
            for place, name in enumerate(row):
                places[name] = (start + place * (wide + 14), top + number * (high + gap))
    shown = reduced({name: _same_panel(name, imports[name]) for name in every})
    for name, others in shown.items():
        for other in sorted(others):
            (x1, y1), (x2, y2) = places[name], places[other]
            drawing.arrow(x1 + wide / 2, y1 + high, x2 + wide / 2, y2)
    for name, (across, down) in places.items():
        drawing.box(across, down, wide, high)
        drawing.text(
            across + wide / 2, down + 18, name.partition(".")[2] or name, 13, text_anchor="middle", font_weight="bold"
        )
        for line, said in enumerate(textwrap.wrap(purpose(name), 31)):
            drawing.text(across + wide / 2, down + 34 + 13 * line, said, 11, SOFT, text_anchor="middle")
    return drawing


def purpose(package: str) -> str:
    """Return the first sentence of the docstring of a package or module."""
    path = ROOT / package.replace(".", "/")
    first = path / "__init__.py"  # a folder without it holds what an older version has left
    text = (first if first.is_file() else path.with_suffix(".py")).read_text(encoding="utf-8")
    paragraph = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0].replace("``", "").replace("`", "")
    return " ".join(re.split(r"\.(?:\s|$)", paragraph)[0].split())


def way_of_a_problem() -> Drawing:
    """Draw what becomes of a problem, step by step."""
    high, gap, left, wide = 46, 16, 120, 760
    drawing = Drawing(left + wide + 16, 16 + len(WAY) * (high + gap))
    begun: dict[str, float] = {}
    for number, (stage, word, where) in enumerate(WAY):
        y = 10 + number * (high + gap)
        if stage not in begun:
            begun[stage] = y
            rows = sum(other == stage for other, *_ in WAY)
            drawing.box(10, y, 96, rows * (high + gap) - gap, PANEL)
            drawing.text(58, y + 20, stage, 13, text_anchor="middle", font_weight="bold")
        sentence, returned = described(where)
        drawing.box(left, y, wide, high)
        drawing.text(left + 12, y + 19, word, 14, font_weight="bold")
        drawing.text(left + 12, y + 36, sentence, 11, SOFT)
        drawing.text(left + wide - 12, y + 19, where.replace("pipeline_lib.", ""), 11, SOFT, MONO, text_anchor="end")
        drawing.text(left + wide - 12, y + 36, f"-> {returned}", 11, INK, MONO, text_anchor="end")
        if number + 1 < len(WAY):
            drawing.arrow(left + 40, y + high, left + 40, y + high + gap)
    return drawing


def described(where: str) -> tuple[str, str]:
    """Return the first sentence of a function's docstring and the type it returns.

    Args:
        where: ``module:function`` or ``module:Class.method``.

    Raises:
        LookupError: there is no such function.
    """
    module, _, name = where.partition(":")
    body: list[ast.stmt] = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")).body
    found: ast.stmt | None = None
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef)
        found = next((node for node in body if isinstance(node, kinds) and node.name == part), None)
        if found is None:
            raise LookupError(f"scripts/draw_map.py: {where} is gone; name its replacement in WAY")
        body = found.body
    assert isinstance(found, ast.FunctionDef)
    sentence = (ast.get_docstring(found) or "").split("\n\n")[0].replace("\n", " ").replace("``", "")
    return textwrap.shorten(sentence.split(". ")[0], 90, placeholder=" ..."), ast.unparse(
        found.returns or ast.Constant(None)
    )


def _package(module: str, packages: Sequence[str]) -> str:
    return next((name for name in packages if module == name or module.startswith(f"{name}.")), "")


def _same_panel(name: str, others: set[str]) -> set[str]:
    library = name.startswith("pipeline_lib")
    return {other for other in others if other.startswith("pipeline_lib") == library}


def main() -> None:
    """Draw, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if a figure is out of date")
    check = parser.parse_args().check
    stale = []
    for name, drawing in (("packages", packages()), ("way-of-a-problem", way_of_a_problem())):
        path = PICTURES / f"{name}.svg"
        if not path.exists() or path.read_text(encoding="utf-8") != str(drawing):
            stale.append(path.relative_to(ROOT).as_posix())
            if not check:
                path.write_text(str(drawing), encoding="utf-8")
    if check and stale:
        sys.exit(f"{', '.join(stale)}: out of date; redraw with `python -m scripts.draw_map`")


if __name__ == "__main__":
    main()
