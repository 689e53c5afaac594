"""docs/api.md: every name of ``import symposium``, from signatures and docstrings.

python -m scripts.api_reference              # writes it
python -m scripts.api_reference --check      # fails if it is not what the code says
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

import symposium

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/api.md"

_HEAD = """# Reference of `import symposium`

Written by `python -m scripts.api_reference` from signatures and docstrings. `help(symposium.train)` says more:
arguments, results and errors. The notebooks show these names at work: [quick start](notebooks/quick-start.ipynb),
[an environment of your own](notebooks/own-environment.ipynb), [reading a verdict](notebooks/verdict.ipynb),
[credit and schemes](notebooks/credit.ipynb).

Names are imported when they are asked for, and need neither Prefect, DVC nor MLflow. Results show themselves in a
notebook; work that takes a while shows a progress bar. Everything plays on training and validation problems; the test
split is the chain's.
"""


def page() -> str:
    """Return the page."""
    modules: dict[str, Any] = {
        home: griffe.load(home, search_paths=[ROOT], docstring_parser="google") for home in {*symposium._HOMES.values()}
    }
    parts = [_HEAD]
    for name, home in symposium._HOMES.items():
        found = modules[home][name]
        parts.append(f"## {name}\n\n```text\n{_signature(name, found)}\n```\n\n{_said(found)}\n")
        if found.is_class:
            members = [f"- `{_signature(f'.{n}', member)}`: {_said(member)}" for n, member in _members(found, name)]
            parts += ["\n".join(members) + "\n"] if members else []
    return "\n".join(parts)


def _members(owner: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the public members of a class that say something, without those that answer what a base class asks."""
    asked = {name for base in getattr(symposium, name).__mro__[1:] for name in vars(base)}
    for name, member in owner.members.items():
        if not name.startswith("_") and name not in asked and member.docstring is not None:
            yield name, member


def _said(found: Any) -> str:
    """Return the first paragraph of a docstring, on one line."""
    text = found.docstring.value.partition("\n\n")[0] if found.docstring else ""
    return " ".join(text.replace("``", "`").split())


def _signature(name: str, found: Any) -> str:
    """Return how it is called, without types: a line, or a few."""
    if found.is_attribute:
        return name
    function = found.members.get("__init__", found) if found.is_class else found
    if found.is_class and function is found:
        return f"class {name}"
    given = [parameter for parameter in function.parameters if parameter.name not in ("self", "cls")]
    texts = [_parameter(parameter) for parameter in given]
    first = next((place for place, parameter in enumerate(given) if parameter.kind.value == "keyword-only"), None)
    if first is not None:
        texts.insert(first, "*")
    line = f"{name}({', '.join(texts)})"
    return line if len(line) <= 100 else "\n".join(textwrap.wrap(line, 100, subsequent_indent=" " * (len(name) + 1)))


def _parameter(parameter: Any) -> str:
    star = {"variadic positional": "*", "variadic keyword": "**"}.get(parameter.kind.value, "")
    default = "" if parameter.default is None or star else f"={parameter.default}"
    return f"{star}{parameter.name}{default}"


def main() -> None:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.api_reference",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if the file is another one")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != page():
        sys.exit("docs/api.md is not what the code says: python -m scripts.api_reference")


if __name__ == "__main__":
    main()
