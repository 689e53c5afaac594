"""The audit of a reward for programs in parts: scripted teams of known value, and pay for working alone.

All texts go through `Environment.step` like any policy's actions.  The list contains teams in which one agent does all
the work, teams whose parts are right alone and do not fit together, teams that satisfy tests without solving anything,
and one that solves a third.  An orchestrated team plays each of them after a right hand-out, and further hand-outs
before right files: of nothing, of everything to one or to all, of other files, and in ways that contradict each other.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_lib.audit.examiner import ScriptedExaminer, ScriptedPlay, Teams, solutions_pass
from pipeline_lib.audit.result import Check, Rung, Status
from pipeline_lib.environments.modules.generated import EARLY, LATE
from pipeline_lib.environments.modules.hand_out import LEAD, WORKERS, descriptions, hand_out_text
from pipeline_lib.environments.modules.problem import PACKAGE, ModulesProblem
from pipeline_lib.environments.modules.program import join_single, package_program, single_text
from pipeline_lib.environments.modules.runtime import stub

#: Teams that pass about this share of the system tests.
_SHARES = {"right_on_a_third": 0.34, "right_on_half": 0.5}


def _about(problem: ModulesProblem, other: ModulesProblem, single: bool) -> dict[str, tuple[str, dict[str, str]]]:
    reference, *ways = problem.references
    parts, (*lower, top) = problem.parts, problem.parts
    wrong = other.references[0] if other.references else {}
    joint = {
        "another_program": ("degenerate", {part: wrong.get(part, "") for part in parts}),
        "last_one_missing": ("other", {**reference, top: ""}),
        "first_one_missing": ("other", {**reference, parts[0]: ""}),
    }
    if problem.layout == "package":
        stubs = {part: memorised(problem, part) for part in parts}
        joint["stubs_that_satisfy_unit_tests"] = ("degenerate", stubs)
        for name, share in _SHARES.items():
            joint[name] = ("other", {**reference, top: right_on(problem, share)})
        joint["all_the_same_file"] = ("degenerate", dict.fromkeys(parts, reference[parts[0]]))
    if problem.layout == "package" or not single:  # a single agent's class is one text, whoever owns a method
        joint["copies_of_another_file"] = ("degenerate", _turned(problem, reference))
        joint["one_writes_all"] = ("other", {**{part: stub(problem, part) for part in lower}, top: whole(problem)})
        joint["one_writes_all_alone"] = ("other", {**dict.fromkeys(lower, ""), top: whole(problem)})
    if ways:
        joint["parts_that_do_not_fit"] = ("other", {**ways[0], top: reference[top]})
    return joint


def _hand_outs(problem: ModulesProblem) -> dict[str, tuple[str, list[str]]]:
    """Return teams whose lead hands out the files in an unusual way."""
    if not problem.references:
        return {}
    parts, lines = problem.parts, descriptions(problem.observations)
    early, late = problem.references
    workers = WORKERS[: len(parts)]
    right = [join_single({part: early[part]}) for part in parts]
    one_way, everything = dict.fromkeys(parts, EARLY), join_single(early)
    first = dict.fromkeys(parts, workers[0])
    to_all = "".join(hand_out_text(lines, one_way, dict.fromkeys(parts, worker)) for worker in workers)
    turned = dict(zip([*parts[1:], parts[0]], workers, strict=True))
    mixed = {**one_way, parts[-1]: LATE}
    no_file = hand_out_text({part: line.replace(".py", "") for part, line in lines.items()}, one_way)
    top = hand_out_text({parts[-1]: lines[parts[-1]]}, one_way)
    return {
        "nothing_handed_out": ("degenerate", ["", *right]),
        "no_file_named": ("degenerate", [no_file, *right]),
        "nobody_named": ("degenerate", [hand_out_text(lines, one_way, dict.fromkeys(parts, "somebody")), *right]),
        "everything_to_one": ("working", [hand_out_text(lines, one_way, first), everything, *[""] * len(workers[1:])]),
        "everything_to_all": ("working", [to_all, *[everything] * len(workers)]),
        "files_of_others": ("degenerate", [hand_out_text(lines, one_way, turned), *right]),
        "contradictory_ways": (
            "other",
            [hand_out_text(lines, mixed), *right[:-1], join_single({parts[-1]: late[parts[-1]]})],
        ),
        "one_file_handed_out": ("other", [top, join_single({parts[-1]: early[parts[-1]]}), *[""] * len(workers[1:])]),
    }


def whole(problem: ModulesProblem) -> str:
    """Return one part that does the work of all: all methods, or the whole program in a package of its own."""
    if problem.layout == "class":
        return single_text(problem, problem.references[0])
    renamed = {part: source.replace(f"from {PACKAGE} ", "from own ") for part, source in problem.references[0].items()}
    return package_program(renamed, problem.parts[-1], problem.entry_point, "own")


def memorised(problem: ModulesProblem, part: str) -> str:
    """Return a part that knows the answers to its own tests and nothing else."""
    return f"def {problem.entry_point}(xs):\n    return {_answers(problem.unit_tests[part])!r}.get(str(xs))\n"


def right_on(problem: ModulesProblem, share: float) -> str:
    """Return the last part of the first known solution with a value for this share of the system tests' inputs only.

    It passes its own unit tests, so a reward that is satisfied with few system tests pays such a team in full.
    """
    inputs = list(_answers(problem.system_tests))
    name, lost = problem.entry_point, inputs[max(1, int(share * len(inputs))) :]
    return (
        f"{problem.references[0][problem.parts[-1]]}\n\nright = {name}\n\n\n"
        f"def {name}(xs):\n    return None if str(xs) in {lost!r} else right(xs)\n"
    )


def _answers(tests: str) -> dict[str, Any]:
    """Return a right answer for each input of the tests of a module, the first one where two are allowed."""
    answers = {}
    for node in ast.walk(ast.parse(tests)):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Call):
            right = ast.literal_eval(node.comparators[0])
            first = right[0] if isinstance(node.ops[0], ast.In) else right
            answers[str(ast.literal_eval(node.left.args[0]))] = first
    return answers


def _turned(problem: ModulesProblem, reference: Mapping[str, str]) -> dict[str, str]:
    parts = problem.parts
    return {part: reference[after] for part, after in zip(parts, [*parts[1:], parts[0]], strict=True)}


#: Teams in which one agent does the work of all.
_ALONE = ("one_writes_all", "one_writes_all_alone")


class ModulesExaminer(ScriptedExaminer):
    """Plays scripted teams; problems without a known solution are used for the degenerate teams only."""

    wanted, words = "system_passed", "system tests passed"

    def teams(self, environment: Any, problem: ModulesProblem, other: ModulesProblem) -> Teams:
        parts = problem.parts
        agents = environment.agents(problem)
        state = environment.start(problem)
        told = problem.observations
        joint: dict[str, tuple[str, dict[str, str]]] = {
            "nobody_does_anything": ("degenerate", dict.fromkeys(parts, "")),
            "copied_prompt": ("degenerate", {part: told[part] for part in parts}),
            "stubs": ("degenerate", {part: stub(problem, part) for part in parts}),
        }
        for number, reference in enumerate(problem.references):
            joint["reference" if not number else f"reference_{number + 1}"] = ("working", dict(reference))
        if problem.references:
            joint |= _about(problem, other, len(agents) == 1)
        if len(agents) == 1:
            return {name: (role, [single_text(problem, sources)]) for name, (role, sources) in joint.items()} | {
                "copied_whole_prompt": ("degenerate", [environment.observe(state, 0)])
            }
        if agents[0] == LEAD:
            right = hand_out_text(descriptions(told), dict.fromkeys(parts, EARLY))
            led = {
                name: (role, [right, *(join_single({part: sources[part]}) for part in parts)])
                for name, (role, sources) in joint.items()
            }
            copied = [environment.observe(state, agent) for agent in range(len(agents))]
            return {**led, "copied_prompt": ("degenerate", copied), **_hand_outs(problem)}
        return {name: (role, [sources[part] for part in parts]) for name, (role, sources) in joint.items()}

    def further(self, rungs: Sequence[Rung], played: ScriptedPlay) -> list[Check]:
        return [_alone(rungs), solutions_pass(played, ("system_passed", "units_passed"))]


def _alone(rungs: Sequence[Rung]) -> Check:
    """Check that a team in which one agent writes everything earns less than one that shares the work."""
    by_name = {rung.name: rung for rung in rungs}
    shared, alone = by_name.get("reference"), [by_name[name] for name in _ALONE if name in by_name]
    if shared is None or not alone:
        return Check("alone", Status.PASS, "There is no team with a known solution, so working alone cannot be tested.")
    best = max(alone, key=lambda rung: rung.reward)
    numbers = {"shared": shared.reward, best.name: best.reward}
    said = f"A team in which one agent writes everything earns {best.reward:.3f}, one that shares {shared.reward:.3f}"
    if best.reward >= shared.reward:
        return Check("alone", Status.FAIL, f"{said}.", numbers, "pay for the unit tests of every part.")
    return Check("alone", Status.PASS, f"{said}.", numbers)
