"""Prompts as a forest of tokens, in which common beginnings are computed once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline_lib.policies.token_blocks import Block, blocks_of
from pipeline_lib.rollouts.rollout_model import Ints


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """A forest of tokens; parents come before their children."""

    ids: Ints  #: ``[nodes]`` token of each node
    depth: Ints  #: ``[nodes]`` its position in its prompts
    owner: Ints  #: ``[nodes]`` index of one of its prompts
    paths: Ints  #: ``[prompts, longest]`` the nodes of each prompt, padded with its last node
    last: Ints  #: ``[prompts]`` node of each prompt's last token
    runs: tuple[tuple[int, int, int], ...]  #: stretches without branches: first node, end, parent of the first (or -1)

    @classmethod
    def of(cls, prompts: Sequence[tuple[int, ...]], policies: Ints | None = None) -> PrefixTree:
        """Return the forest of ``prompts``; those of different ``policies``, ``[prompts]``, share nothing."""
        found = cls._grown(prompts, policies, sys.maxsize)
        assert found is not None
        return found

    @classmethod
    def small(cls, prompts: Sequence[tuple[int, ...]], most: int) -> PrefixTree | None:
        """Return the forest; None if it has more than ``most`` nodes, or if no prompts have a beginning in common."""
        found = cls._grown(prompts, None, most)
        return found if found is not None and len(found.ids) < sum(map(len, prompts)) else None

    @classmethod
    def _grown(cls, prompts: Sequence[tuple[int, ...]], policies: Ints | None, most: int) -> PrefixTree | None:
        longest = max(map(len, prompts))
        if longest > most:
            return None
        known: dict[tuple[int, int], int] = {}
        depth: list[int] = []
        owner: list[int] = []
        paths: list[list[int]] = []
        runs: list[tuple[int, int, int]] = []
        for number, prompt in enumerate(prompts):
            node, path, first = -1 if policies is None else -1 - int(policies[number]), [], len(depth)
            for place, token in enumerate(prompt):
                found = known.get((node, token))
                if found is None:
                    found = known[node, token] = len(depth)
                    depth.append(place)
                    owner.append(number)
                path.append(node := found)
            if len(depth) > most:
                return None
            shared = len(prompt) - (len(depth) - first)
            if shared < len(prompt):  # what is new of a prompt is its end
                runs.append((first, len(depth), path[shared - 1] if shared else -1))
            paths.append(path + [node] * (longest - len(path)))
        ids = np.array([token for _, token in known], dtype=np.int64)
        table = np.array(paths, dtype=np.int64)
        places = np.array(depth, dtype=np.int64)
        return cls(ids, places, np.array(owner, dtype=np.int64), table, table[:, -1].copy(), tuple(runs))

    def seen(self, size: int) -> npt.NDArray[np.bool_]:
        """Return ``[size, size]``: whether a node (row) sees another (column); padding rows see only themselves."""
        found = np.eye(size, dtype=bool)
        places = np.minimum(np.arange(self.paths.shape[1]), self.depth[:, None])  # beyond its own depth, a node again
        nodes = self.paths[self.owner[:, None], places]
        found[np.arange(len(self.ids))[:, None], nodes] = True
        return found

    def blocks(self) -> tuple[Block, ...]:
        """Return the same by stretches of nodes."""
        return tuple(blocks_of(0, 0, self.runs))
