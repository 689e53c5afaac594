"""Stage ``test``: base, selected, last and baselines on the held-out split.  ``python -m flows.test``."""

from tasks.runtime.stage import run_stage
from tasks.stages.testing import test_teams

if __name__ == "__main__":
    run_stage("test", test_teams)
