"""``python -m symposium``: the same as ``symposium``."""

from symposium.cli import main

main()
