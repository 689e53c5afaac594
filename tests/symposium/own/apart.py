"""The rendezvous with a reward that pays for missing each other."""

from collections.abc import Mapping

import rendezvous

import symposium


class Apart(rendezvous.Rendezvous):
    def score(self, text: str, actions: Mapping[str, str]) -> symposium.Score:
        found = super().score(text, actions)
        return symposium.Score({"apart": 1.2 - sum(found.terms.values())}, found.metrics)
