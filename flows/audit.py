"""Stage ``audit``: test whether the best policy under the reward does the task. ``python -m flows.audit``."""

from tasks.runtime.stage import run_stage
from tasks.stages.auditing import audit_reward

if __name__ == "__main__":
    run_stage("audit", audit_reward)
