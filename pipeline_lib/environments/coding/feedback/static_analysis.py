"""The source ``static_analysis``: what pyflakes finds in an agent's part of the joined program, without running it.

It sees the joined program and the problem's prelude, never a test.  A finding that names something that is not in the
agent's own part (a module that the other agent imports everything from) is left out.
"""

from __future__ import annotations

from pipeline_lib.environments.coding.feedback.analysis import Analysis

#: Parts keep their own numbers of lines, so that a finding's line says whose it is.  The prelude is the last part.  If
#: pyflakes fails with them together, it reads each alone, and says nothing of names that the others may define.
_CODE = """
import ast
import re
from pyflakes.checker import Checker
from pyflakes.messages import UndefinedName

FAR = 10**6

def analyse(parts, most):
    try:
        return together(parts, most)
    except Exception:
        return [alone(part, parts[-1], most) for part in parts[:-1]]

def alone(part, prelude, most):
    try:
        (found,) = together([part, prelude], most, (UndefinedName,))
        return found
    except Exception:
        return None

def together(parts, most, unsaid=()):
    body = []
    for number, source in enumerate(parts[-1:] + parts[:-1]):
        tree = ast.parse(source)
        ast.increment_lineno(tree, number * FAR)
        body += tree.body
    future = [s for s in body if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    tree = ast.Module([*future, *(s for s in body if s not in future)], [])
    found = [[] for _ in parts[:-1]]
    for message in sorted(Checker(tree).messages, key=lambda one: (one.lineno, one.col)):
        number, line = divmod(message.lineno, FAR)
        names = [name for value in message.message_args for name in re.findall(r"\\w+", str(value))
                 if not isinstance(value, int)]
        if number == 0 or isinstance(message, unsaid) or not set(names) <= set(re.findall(r"\\w+", parts[number - 1])):
            continue
        text = re.sub(r" from line \\d+", "", message.message % message.message_args)
        source = parts[number - 1].splitlines()[line - 1].strip()
        if len(found[number - 1]) < most:
            found[number - 1].append(f"{text}: {source}"[:400])
    return found
"""

PYFLAKES = Analysis("static_analysis", _CODE)
