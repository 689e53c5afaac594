"""Stage ``audit``: does the best policy under the reward do the task?  ``python -m flows.audit``."""

from prefect import flow

from pipeline_lib.settings import load_params
from tasks.auditing import audit_reward
from tasks.stage import main, stage


@flow(name="audit")
def audit() -> None:
    """Try scripted teams and the base policy on the reward, and write the verdict that training asks for."""
    params = load_params()
    with stage("audit", params) as run:
        audit_reward(params, run)


if __name__ == "__main__":
    main(audit)
