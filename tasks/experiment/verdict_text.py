"""A verdict as Markdown, for Prefect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def in_markdown(result: Mapping[str, Any]) -> str:
    """Return the content of ``results/verdict.json`` as its word and three lines, the details of the caveats folded."""
    told = "\n".join(f"- {text}" for caveat in result["caveats"] for text in caveat["details"])
    folded = f"<details><summary>The caveats</summary>\n\n{told}\n\n</details>" if told else ""
    return "\n\n".join(filter(None, (f"## {result['verdict']}", *result["lines"], folded)))
