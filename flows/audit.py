"""Stage ``audit``: test whether the best policy under the reward does the task. ``python -m flows.audit``."""

from prefect import flow

from tasks.identity.stages import settings_of
from tasks.runtime.stage import main, stage
from tasks.stages.auditing import audit_reward


@flow(name="audit")
def audit() -> None:
    """Try scripted teams and the base policy on the reward, and write the verdict that training asks for."""
    params = settings_of("audit")
    with stage("audit", params) as run:
        audit_reward(params, run)


if __name__ == "__main__":
    main(audit)
