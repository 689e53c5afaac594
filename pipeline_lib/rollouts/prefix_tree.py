"""Prompts as one tree of tokens, in which every shared prefix occurs once.

It works on token ids only.  A node attends to its ancestors and itself, so its states are those of its own prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """A forest of tokens; parents come before their children."""

    ids: Ints  #: ``[nodes]`` token of each node
    depth: Ints  #: ``[nodes]`` its position in its prompts
    owner: Ints  #: ``[nodes]`` index of one of its prompts
    paths: Ints  #: ``[prompts, longest]`` the nodes of each prompt, padded with its last node
    last: Ints  #: ``[prompts]`` node of each prompt's last token

    @classmethod
    def of(cls, prompts: Sequence[tuple[int, ...]], most: int) -> PrefixTree | None:
        """Return the tree of ``prompts``, or None when it has more than ``most`` nodes or nothing is shared."""
        longest, tokens = max(map(len, prompts)), sum(map(len, prompts))
        if longest > most:
            return None
        known: dict[tuple[int, int], int] = {}
        depth: list[int] = []
        owner: list[int] = []
        paths: list[list[int]] = []
        for number, prompt in enumerate(prompts):
            node, path = -1, []
            for place, token in enumerate(prompt):
                found = known.get((node, token))
                if found is None:
                    found = known[node, token] = len(depth)
                    depth.append(place)
                    owner.append(number)
                path.append(node := found)
            if len(depth) > most:
                return None
            paths.append(path + [node] * (longest - len(path)))
        if len(depth) == tokens:
            return None
        ids = np.array([token for _, token in known], dtype=np.int64)
        table = np.array(paths, dtype=np.int64)
        return cls(ids, np.array(depth, dtype=np.int64), np.array(owner, dtype=np.int64), table, table[:, -1].copy())

    def seen(self, size: int) -> npt.NDArray[np.bool_]:
        """Return ``[size, size]``: whether a node (row) sees another (column); padding rows see only themselves."""
        found = np.eye(size, dtype=bool)
        places = np.minimum(np.arange(self.paths.shape[1]), self.depth[:, None])  # beyond its own depth, a node again
        nodes = self.paths[self.owner[:, None], places]
        found[np.arange(len(self.ids))[:, None], nodes] = True
        return found
