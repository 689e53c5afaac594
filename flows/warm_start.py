"""Stage ``warm_start``: the base policy that every agent starts from.  ``python -m flows.warm_start``."""

from pipeline_lib.policies.warm_start import build_base, later_turns
from tasks.experiment.arms import BASE, PROBLEMS
from tasks.identity.stages import whole
from tasks.runtime.stage import StageRun, run_stage


def warm_start(run: StageRun) -> None:
    """Build the embedded policy and warm-start it, or a pretrained one; else note which pretrained one is used."""
    facts = build_base(run.params.policy, PROBLEMS, BASE, run.progress, later_turns(whole(run.params)), run.log)
    run.log(0, {f"base/{name}": float(value) for name, value in facts.items() if isinstance(value, int | float)})


if __name__ == "__main__":
    run_stage("warm_start", warm_start)
