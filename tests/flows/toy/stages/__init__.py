"""The stage that learns becomes a fork of the process with the libraries, as those of `flows` do.

An experiment with as many jobs as stages has no such process; that of the tests serves as well.
"""

import os

from tasks.services.stage_proxy import ADDRESS, run_in_preloaded

if address := os.environ.get("TOY_LIBRARIES"):
    os.environ.setdefault(ADDRESS, address)
run_in_preloaded()
