"""The source ``types``: what mypy finds in an agent's part, without running it.

mypy sees the problem's prelude and one agent's part at a time.  Names of the other agent's part have any type, so a
message cannot quote that part, not even in a type.  Errors about undefined names and modules are left out for the same
reason: in the joined program they may be defined.  What is imported from packages has any type, too, because checking
a package's own types takes longer than a program may run.
"""

from __future__ import annotations

from pipeline_lib.environments.coding.feedback.analysis import Analysis

#: All parts are checked in one build, because most of its time goes into the types of the standard library.  If one of
#: them ends it, each has a build of its own; None are the findings of a part with which mypy itself fails.
_CODE = r"""
import hashlib
import os
import re
from mypy import build
from mypy.errors import CompileError
from mypy.modulefinder import BuildSource
from mypy.options import Options

def analyse(parts, most):
    prelude, own = parts[-1], parts[:-1]
    options = Options()
    options.incremental = False
    options.python_executable = None
    options.cache_dir = os.devnull
    options.check_untyped_defs = True
    options.ignore_missing_imports = True
    options.disable_error_code = ["name-defined", "used-before-def"]
    options.hide_error_codes = True
    options.show_error_context = False
    options.process_error_codes(error_callback=print)
    # One part must not import another, so no part can know another's name.
    names = [f"part{n}_{hashlib.sha256(part.encode()).hexdigest()}" for n, part in enumerate(own)]
    sources = [BuildSource(f"{name}.py", name, f"{prelude}\n{part}") for name, part in zip(names, own)]
    try:
        messages = build.build(sources, options).errors
    except Exception as error:
        if len(own) > 1:
            return [found for part in own for found in analyse([part, prelude], most)]
        if not isinstance(error, CompileError):
            return [None]
        messages = error.messages
    found = [[] for _ in own]
    before = prelude.count("\n") + 1
    for message in messages:
        match = re.match(r"part(\d+)_\w+\.py:(\d+): error: (.*)", message)
        if match is None:
            continue
        number, line = int(match[1]), int(match[2]) - before
        text = re.sub(r" (on|from) line \d+", "", match[3].strip()).replace(f"{names[number]}.", "")
        if line > 0 and len(found[number]) < most:
            found[number].append(f"{text}: {own[number].splitlines()[line - 1].strip()}"[:400])
    return found
"""

MYPY = Analysis("types", _CODE)
