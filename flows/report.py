"""Stage ``report``: one page for people, and the same series for ``dvc plots``.  ``python -m flows.report``."""

from tasks.runtime.stage import run_stage
from tasks.stages.reporting import make_report

if __name__ == "__main__":
    run_stage("report", make_report)
