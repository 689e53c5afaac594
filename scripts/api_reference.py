"""docs/api.md: every name of ``import symposium``, from signatures and docstrings.

python -m scripts.api_reference              # writes it
python -m scripts.api_reference --check      # fails if it is not what the code says
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe

import symposium

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/api.md"

_HEAD = """# Reference of `import symposium`

Written by `python -m scripts.api_reference`; `help(symposium.train)` says more. Names need neither Prefect, DVC nor
MLflow. Everything plays on training and validation problems; the test split is the chain's.
"""


def page() -> str:
    """Return the page."""
    modules: dict[str, Any] = {
        home: griffe.load(home, search_paths=[ROOT], docstring_parser="google") for home in {*symposium._HOMES.values()}
    }
    parts = [_HEAD]
    for name, home in symposium._HOMES.items():
        found = modules[home][name]
        parts.append(f"- `{_signature(name, found)}`: {_said(found)}")
        if found.is_class:
            parts += [f"    - `{_signature(f'.{n}', member)}`: {_said(member)}" for n, member in _members(found, name)]
    return "\n".join(parts) + "\n"


def _members(owner: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the public members of a class that say something, without those that answer what a base class asks."""
    asked = {name for base in getattr(symposium, name).__mro__[1:] for name in vars(base)}
    for name, member in owner.members.items():
        if not name.startswith("_") and name not in asked and member.docstring is not None:
            yield name, member


def _said(found: Any) -> str:
    """Return the first paragraph of a docstring, on one line."""
    text = found.docstring.value.partition("\n\n")[0] if found.docstring else ""
    text = " ".join(text.replace("``", "`").split()).removeprefix("Return ")
    return text[0].upper() + text[1:]


def _signature(name: str, found: Any) -> str:
    """Return how it is called, without types."""
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
    return f"{name}({', '.join(texts)})"


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
