"""Join the parts that agents wrote into a program, and read off the texts what does not need a run.

A text is Python, or Markdown whose fenced blocks are.  A single agent's text has the line ``# <part>.py`` before each
part.

*Files* become a package in the memory of the program's own process.  The text of the program contains the files and an
import hook that serves them, so nothing is written to a disk, and the sandbox runs it like any other program.  Files
are imported by the first call, in the order in which they import each other.  All files of a program share its process:
what one of them does to the others counts as what the program does.  The tests are in another process.

*Methods* become one class.  The prelude of the problem is the class's frame: imports, and the class with its
constructor.  A part's text is methods, with or without a class around them and however far they are indented.  In the
joined program each part first runs alone, in a namespace of its own and with a class of its own.  Of what it has bound
in that class then, by whatever means, the class that the tests get takes the part's own methods and its helpers: no
name of another part, of the frame or of every object, and no ``__getattr__``.
"""

from __future__ import annotations

import ast
import copy
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pipeline_lib.environment_kit.programs import parsed
from pipeline_lib.environments.modules.problem import PACKAGE, ModulesProblem
from pipeline_lib.sandbox import Job

_PROGRAM = '''\
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec


class Files:
    """Serves a package whose modules are texts."""

    def __init__(self, package, sources):
        self.package, self.sources = package, sources

    def find_spec(self, name, path=None, target=None):
        package, _, module = name.partition(".")
        if package == self.package and (not module or module in self.sources):
            return ModuleSpec(name, self, is_package=not module)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        name = module.__name__.partition(".")[2]
        if name:
            exec(compile(self.sources[name], name + ".py", "exec", dont_inherit=True), module.__dict__)


sys.meta_path.insert(0, Files({package!r}, {sources!r}))


def {function}(*args, **kwargs):
    return import_module({top!r}).{function}(*args, **kwargs)
'''


def package_program(sources: Mapping[str, str], top: str, function: str, package: str = PACKAGE) -> str:
    """Return a program with a package in memory, whose ``function`` passes calls on to that of the module ``top``."""
    return _PROGRAM.format(package=package, sources=dict(sources), top=f"{package}.{top}", function=function)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_CELL = "__symposium_cell__"  # a method whose closure is the cell of `__class__` and `super()` in the class's methods

_JOIN = f'''\
__builtins__ = dict(vars(__import__("builtins")))  # each part has builtins of its own, and the join, too


def __symposium_join__(name, frame, fields, parts):
    home = globals()
    spaces = [{{**home, "__builtins__": dict(__builtins__)}} for part in parts]
    found = ()
    for space, (source, own, foreign) in zip(spaces, parts):
        try:
            exec(compile(source, "<program>", "exec", dont_inherit=True), space)
            bound = {{key: value for kind in space[name].__mro__[-2::-1] for key, value in vars(kind).items()}}
            found = *found, (space, bound, own, foreign)
        except BaseException:  # it adds nothing
            pass
    exec(compile(frame, "<program>", "exec", dont_inherit=True), home)
    made = home[name]
    given = {{*dir(made), *fields, "__getattr__", "{_CELL}"}}
    for space, bound, own, foreign in found:
        for key, value in bound.items():
            further = key[:2] != "__" or key[-2:] != "__" or type(value) is type(__symposium_join__)
            if key in own or further and key not in foreign and key not in given:
                setattr(made, key, value)
        space[name] = made
        cell = bound.get("{_CELL}")
        if cell is not None:
            cell.__closure__[0].cell_contents = made


'''


@lru_cache(maxsize=4096)
def methods_of(text: str, name: str) -> frozenset[str] | None:
    """Return the names of the methods that a text defines for the class ``name``; None if it does not parse."""
    tree = _parse(text)
    return (
        None if tree is None else frozenset(node.name for node in _inside(tree, name) if isinstance(node, _FUNCTIONS))
    )


def class_program(frame: str, name: str, sources: Mapping[str, str], owned: Mapping[str, tuple[str, ...]]) -> str:
    """Return the joined class; a part that does not parse, or raises an exception when it runs alone, adds nothing.

    ``frame`` is source with the class's constructor; ``owned`` has the names of the methods of each part.
    """
    tree = ast.parse(frame)
    (whole,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    attributes = (node for node in ast.walk(whole) if isinstance(node, ast.Attribute))
    fields = tuple(sorted({node.attr for node in attributes if _is_field(node)}))
    bound = {part: tuple(_mangled(method, name) for method in methods) for part, methods in owned.items()}
    parts = []
    for part, text in sources.items():
        alone = _alone(text, whole)
        if alone is not None:
            foreign = tuple(method for other, methods in bound.items() if other != part for method in methods)
            parts.append((alone, bound[part], foreign))
    around = ast.unparse(ast.Module([node for node in tree.body if node is not whole], []))
    head = "\n".join(ast.unparse(node) for node in tree.body if isinstance(node, ast.ImportFrom) and _is_future(node))
    parts = [(f"{head}\n{source}", names, foreign) for source, names, foreign in parts]
    frame = f"{head}\n{ast.unparse(whole)}"
    call = f"__symposium_join__({name!r}, {frame!r}, {fields!r}, {tuple(parts)!r})\n"
    return f"{around}\n\n\n{_JOIN}{call}del __symposium_join__\n"


def _parse(text: str) -> ast.Module | None:
    for form in (text, textwrap.dedent(text), f"class _:\n{text}", f"class _:\n{textwrap.indent(text, ' ')}"):
        match parsed(form):
            case ast.Module(body=[ast.ClassDef(name="_", body=body)]):
                return ast.Module(body, [])
            case ast.Module() as tree:
                return tree
    return None


def _written(tree: ast.Module, name: str) -> list[ast.ClassDef]:
    return [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]


def _inside(tree: ast.Module, name: str) -> list[ast.stmt]:
    """Return the statements of the class in a part: those of the class that it writes, else its functions."""
    written = _written(tree, name)
    if written:
        return [statement for node in written for statement in node.body if "__slots__" not in _bound(statement)]
    return [node for node in tree.body if isinstance(node, _FUNCTIONS)]


def _alone(text: str, whole: ast.ClassDef) -> str | None:
    """Return the program of one part alone: its statements, and the frame's class with its members; None without one.

    Functions without a class are methods; those that take no object are functions, too, which methods may call.
    """
    tree = _parse(text)
    if tree is None:
        return None
    inside, written = _inside(tree, whole.name), _written(tree, whole.name)
    cell = ast.parse(f"def {_CELL}(self): return __class__").body
    known = {whole.name, *map(ast.unparse, whole.bases)}
    bases = [*whole.bases, *(base for node in written[-1:] for base in node.bases if ast.unparse(base) not in known)]
    made = ast.ClassDef(whole.name, bases, whole.keywords, [*whole.body, *inside, *cell], whole.decorator_list)
    body: list[ast.stmt] = []
    for node in tree.body:
        if node in written[-1:]:
            body.append(made)
        elif node not in written and (written or node not in inside or not _takes_object(node)):
            body.append(node)
    return _source(body if written else [*body, made])


def _source(body: list[ast.stmt]) -> str | None:
    try:
        return ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))
    except (ValueError, RecursionError):  # a formatted string without a source form in this Python; nested too deeply
        return None


def _takes_object(node: ast.stmt) -> bool:
    assert isinstance(node, _FUNCTIONS)
    return [argument.arg for argument in (node.args.posonlyargs + node.args.args)[:1]] in (["self"], ["cls"])


def idle(text: str, methods: Sequence[str]) -> str:
    """Return methods that do nothing, and otherwise look like those that a part's text defines.

    Stubs that look like stubs would be left alone by a part that repairs another one's wrong methods when it is called.
    """
    nodes = ast.walk(_parse(text) or ast.Module([], []))
    found = {node.name: node for node in nodes if isinstance(node, _FUNCTIONS)}
    return "\n".join(_idle(name, found.get(name)) for name in methods)


def _idle(name: str, found: ast.FunctionDef | ast.AsyncFunctionDef | None) -> str:
    (made,) = ast.parse(f"def {name}(self):\n    return [None]").body
    assert isinstance(made, ast.FunctionDef)
    if found is None:
        return ast.unparse(made)
    arguments = copy.deepcopy(found.args)
    for node in ast.walk(arguments):
        if isinstance(node, ast.arg):
            node.annotation = None
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [value and ast.Constant(None) for value in arguments.kw_defaults]
    never = ast.If(ast.List([], ast.Load()), found.body, [])
    end = made.body if isinstance(found, ast.FunctionDef) else []  # an asynchronous generator returns no value
    return _source([type(found)(name, arguments, [never, *end], [])]) or ast.unparse(made)


def _is_field(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _is_future(node: ast.ImportFrom) -> bool:
    return node.module == "__future__"


def _mangled(method: str, name: str) -> str:
    """Return the name under which a method is in its class, which differs for private ones such as ``__count``."""
    private = method.startswith("__") and not method.endswith("__")
    return f"_{name.lstrip('_')}{method}" if private and name.strip("_") else method


_FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^# (\w+)\.py[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Form:
    """What the text of a part shows."""

    parses: bool  #: it is Python
    defines: bool  #: it binds the names that it must, at its top level


def split_single(text: str, parts: Sequence[str]) -> dict[str, str]:
    """Return the text below each part's heading in a single agent's text: the last one, "" if there is none."""
    pieces = _HEADING.split(unfenced(text))
    by_part = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    return {part: by_part.get(part, "").strip("\n") for part in parts}


def join_single(sources: Mapping[str, str]) -> str:
    """Return the text in which a single agent writes all parts."""
    return "\n".join(f"# {part}.py\n{source}" for part, source in sources.items())


def unfenced(text: str) -> str:
    """Return the fenced blocks of a Markdown text one after the other; a text without any as it is."""
    blocks: list[str] = _FENCED.findall(text)
    return "\n".join(blocks) if blocks else text


def single_text(problem: ModulesProblem, sources: Mapping[str, str]) -> str:
    """Return the text in which a single agent writes these parts."""
    ordered = {part: sources[part] for part in problem.parts}
    return "\n".join(ordered.values()) if problem.layout == "class" else join_single(ordered)


def sources_of(problem: ModulesProblem, text: str) -> dict[str, str]:
    """Return the parts in a single agent's text: files below headings, or for each part the whole class."""
    if problem.layout == "class":
        return dict.fromkeys(problem.parts, unfenced(text))
    return split_single(text, problem.parts)


def program(problem: ModulesProblem, sources: Mapping[str, str], top: str) -> str:
    """Return the program of some parts; of a package, the tests call ``top``."""
    if problem.layout == "class":
        return class_program(problem.prelude, problem.entry_point, sources, problem.defines)
    return package_program(sources, top, problem.entry_point)


def solution_jobs(problem: ModulesProblem) -> list[Job]:
    """Return the jobs of a problem's first known solution: all tests of the whole, and those of each part."""
    code = program(problem, problem.references[0], problem.parts[-1])
    tests = (problem.system_tests, *problem.unit_tests.values())
    return [Job(problem.id, code, source, problem.entry_point) for source in tests]


def below(problem: ModulesProblem, part: str) -> tuple[str, ...]:
    """Return the parts that a part builds on, directly or through others, in the order of the parts."""
    wanted = [part]
    for name in wanted:
        wanted += [needed for needed in problem.needs[name] if needed not in wanted]
    return tuple(name for name in problem.parts if name in wanted and name != part)


def form(problem: ModulesProblem, part: str, text: str) -> Form:
    """Return the form of the text of a part."""
    if problem.layout == "class":
        names = methods_of(text, problem.entry_point)
    else:
        names = top_level(text)
    return Form(names is not None, names is not None and set(problem.defines[part]) <= names)


@lru_cache(maxsize=8192)
def top_level(text: str) -> frozenset[str] | None:
    """Return the names that a module binds at its top level; None if it does not parse."""
    tree = parsed(text)
    return None if tree is None else frozenset(name for statement in tree.body for name in _bound(statement))


def _bound(statement: ast.stmt) -> set[str]:
    """Return the names that a statement binds; nothing of what is nested in it."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            stored = (node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
            return {node.id for node in stored if isinstance(node.ctx, ast.Store)}  # not the run of table[run] = 1
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {alias.asname or alias.name.partition(".")[0] for alias in names}
    return set()
