"""The metrics of a team that writes a program in parts.

An outcome has the metrics of the parts that its problem has, and an orchestrated team those of its hand-out.
"""

from pipeline_lib.environment_api.metrics import Metric, behaviour
from pipeline_lib.environments.modules.problems.design import LOWER, TOP

METRICS = {
    "system_passed": Metric(
        "hidden system tests passed",
        "share of the hidden tests of the whole program that it passes",
        share=True,
        over_checkpoints=True,
        at_k="accuracy",
    ),
    "system_right": Metric(
        "all system tests passed",
        "the joint program passes every hidden test of the whole",
        share=True,
        over_checkpoints=True,
        solves=True,
    ),
    "units_passed": Metric(
        "hidden unit tests passed",
        "share of a part's own hidden tests that it passes among right parts, mean over the parts",
        share=True,
        over_checkpoints=True,
    ),
    "units_right": Metric(
        "parts right on their own", "share of the parts that pass all their own hidden tests", share=True
    ),
    "parts_needed": behaviour(
        "parts that are needed",
        "share of the parts without which (with a stub in their place) fewer system tests pass",
        over_checkpoints=True,
    ),
    "parts_defined": behaviour("parts defined", "share of the parts that parse and define what they must"),
    "parts_parse": behaviour("parts that parse", "share of the parts that are valid Python", over_checkpoints=True),
    "parts_handed_out": behaviour("parts handed out", "share of the parts that the lead hands out to a worker"),
    "workers_used": behaviour("workers used", "share of the workers to whom the lead hands out a part"),
    **{
        f"unit_{part}": Metric(
            f"unit tests of {part}", f"share of the hidden unit tests that {part} passes among right parts", share=True
        )
        for part in (*LOWER, TOP)
    },
    **{
        f"needed_{part}": behaviour(f"{part} needed", f"fewer system tests pass with a stub in place of {part}")
        for part in (*LOWER, TOP)
    },
}
