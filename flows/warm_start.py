"""Stage ``warm_start``: the base policy that every agent starts from.  ``python -m flows.warm_start``."""

from prefect import flow

from pipeline_lib.assembly.demonstrating import later_turns
from pipeline_lib.policies.warm_start import build_base
from tasks.experiment.arms import BASE, PROBLEMS
from tasks.identity.stages import settings_of, whole
from tasks.runtime.stage import main, stage


@flow(name="warm_start")
def warm_start() -> None:
    """Build the embedded policy and warm-start it, or a pretrained one; else note which pretrained one is used."""
    params = settings_of("warm_start")
    with stage("warm_start", params) as run:
        facts = build_base(params.policy, PROBLEMS, BASE, run.progress, later_turns(whole(params)), run.log)
        run.log(0, {f"base/{name}": float(value) for name, value in facts.items() if isinstance(value, int | float)})


if __name__ == "__main__":
    main(warm_start)
