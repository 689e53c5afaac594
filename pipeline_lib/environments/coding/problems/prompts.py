"""Prompts of the agents of a team for a problem of a published dataset.

Helper and main agent get the whole problem and their own part of it; neither sees the other's code.  The skeleton shows
the requested function, taken from the syntax tree: it has the parameters of the entry point, not those of another
function that the problem happens to define first.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

HELPER = "aux"

_RULES = (
    "Answer with Python code and nothing else: no explanation, no Markdown fences, no tests, no examples. "
    "What the problem imports or defines is already there."
)


def observations(task: str, function: ast.FunctionDef, examples: Sequence[str] = ()) -> dict[str, str]:
    """Return the observation of each role.

    Args:
        task: the problem as published, code or text.
        function: definition of the entry point; its parameters and name are used, not its body.
        examples: visible tests, as source.
    """
    name = function.name
    shown = "\n".join(["Problem:", "", task.strip("\n"), *(["", "For example:", *examples] if examples else [])])
    helper = _skeleton(HELPER, function)
    main = _skeleton(name, function, f"result = {HELPER}({_call(function)})")
    return {
        "helper": (
            "Two programmers solve a problem together without seeing each other's code.\n\n"
            f"{shown}\n\n"
            f"You write the helper function {HELPER}: a part of the work whose result the other programmer's function "
            f"{name} can build on. {name} is not yours to write. {_RULES}\n\n{helper}\n"
        ),
        "main": (
            "Two programmers solve a problem together without seeing each other's code.\n\n"
            f"{shown}\n\n"
            f"You write the function {name}. The other programmer writes a helper function {HELPER}, probably with "
            f"the same parameters; call it where it helps, and do not define it. {_RULES}\n\n{main}\n"
        ),
        "single": (
            f"Solve this problem with two functions.\n\n{shown}\n\n"
            f"Write a helper function {HELPER} that does a part of the work, and the complete function {name}, which "
            f"calls it. {_RULES}\n\n{helper}\n\n{main}\n"
        ),
    }


def _skeleton(name: str, function: ast.FunctionDef, *lines: str) -> str:
    returns = f" -> {ast.unparse(function.returns)}" if function.returns and name != HELPER else ""
    head = f"def {name}({ast.unparse(function.args)}){returns}:"
    return "\n".join([head, "    ...", *(f"    {line}" for line in lines), "    return result"])


def _call(function: ast.FunctionDef) -> str:
    """Return the arguments that pass the parameters on."""
    arguments = function.args
    parts = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    if arguments.vararg:
        parts.append(f"*{arguments.vararg.arg}")
    parts += [f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs]
    if arguments.kwarg:
        parts.append(f"**{arguments.kwarg.arg}")
    return ", ".join(parts)
