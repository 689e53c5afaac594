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

Written by `python -m scripts.api_reference` from signatures and docstrings. The notebooks show these names at work:
[quick start](notebooks/quick-start.ipynb), [an environment of your own](notebooks/own-environment.ipynb),
[reading a verdict](notebooks/verdict.ipynb), [credit and schemes](notebooks/credit.ipynb).

Names are imported when they are asked for, and need neither Prefect, DVC nor MLflow. Results show themselves in a
notebook; work that takes a while shows a progress bar there and on a terminal. Everything plays on training and
validation problems; the test split is the chain's.
"""

_HEADINGS = {"parameters": "Arguments", "attributes": "Attributes", "raises": "Raises"}


def page() -> str:
    """Return the page."""
    modules: dict[str, Any] = {
        home: griffe.load(home, search_paths=[ROOT], docstring_parser="google") for home in {*symposium._HOMES.values()}
    }
    parts = [_HEAD]
    for name, home in symposium._HOMES.items():
        parts += _entry(name, modules[home][name], "##")
        if modules[home][name].is_class:
            parts += _members(modules[home][name], getattr(symposium, name))
    return "\n".join(parts)


def _members(owner: Any, cls: type) -> Iterator[str]:
    """Yield what a class says of its public members, without those that only answer what a base class asks."""
    asked = {name for base in cls.__mro__[1:] for name in vars(base)}
    for name, member in owner.members.items():
        if not name.startswith("_") and name not in asked and member.docstring is not None:
            yield from _entry(f"{owner.name}.{name}", member, "###")


def _entry(name: str, found: Any, level: str) -> Iterator[str]:
    yield f"{level} {name}\n"
    yield f"```python\n{_signature(name, found)}\n```\n"
    for section in found.docstring.parsed if found.docstring else ():
        kind = section.kind.value
        if kind == "text":
            yield f"{section.value.replace('``', '`')}\n"
        elif kind in _HEADINGS:
            yield f"{_HEADINGS[kind]}:\n"
            yield "\n".join(f"- `{_of(item)}`: {_line(item.description)}" for item in section.value) + "\n"
        elif kind == "returns":
            yield f"Returns: {_line(' '.join(item.description for item in section.value))}\n"


def _of(item: Any) -> str:
    return str(getattr(item, "name", None) or item.annotation).strip("()")


def _line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def _signature(name: str, found: Any) -> str:
    """Return how it is called, on one line or on a line per parameter."""
    if found.is_attribute:
        return f"{name}: {found.annotation}"
    function = found.members.get("__init__", found) if found.is_class else found
    if found.is_class and function is found:
        return f"class {name}"
    given = [parameter for parameter in function.parameters if parameter.name not in ("self", "cls")]
    texts = [_parameter(parameter) for parameter in given]
    first = next((place for place, parameter in enumerate(given) if parameter.kind.value == "keyword-only"), None)
    if first is not None:
        texts.insert(first, "*")
    end = "" if found.is_class else f" -> {function.returns}"
    line = f"{name}({', '.join(texts)}){end}"
    return line if len(line) <= 100 else f"{name}(\n" + "".join(f"    {text},\n" for text in texts) + f"){end}"


def _parameter(parameter: Any) -> str:
    star = {"variadic positional": "*", "variadic keyword": "**"}.get(parameter.kind.value, "")
    default = "" if parameter.default is None or star else f" = {parameter.default}"
    return f"{star}{parameter.name}: {parameter.annotation}{default}"


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
