"""The metrics of two writers, and what the names of the reward's terms mean."""

from __future__ import annotations

from pipeline_lib.environment_api.metrics import Metric, behaviour

METRICS = {
    "coverage": Metric(
        "facts told",
        "share of the facts of the source that the two texts tell",
        share=True,
        over_checkpoints=True,
        at_k="coverage",
    ),
    "all_told": Metric(
        "all facts told and nothing else",
        "every fact is told, none twice, and no sentence says anything else",
        share=True,
        over_checkpoints=True,
        solves=True,
    ),
    "inventions": behaviour(
        "sentences that do not follow",
        "share of the sentences that do not follow from the source",
        better="lower",
        over_checkpoints=True,
    ),
    "copied": behaviour(
        "sentences copied or repeated",
        "share of the sentences that are copies of the source or repeat what was said",
        better="lower",
    ),
    "fitting": behaviour(
        "both lengths and their ratio as asked",
        "the lengths of both texts, and their ratio, lie within the limits",
        over_checkpoints=True,
    ),
    "complete": behaviour("complete sentences", "share of the sentences that begin and end as sentences do"),
    "style": behaviour(
        "facts told in one style", "share of the facts that are told in the prevailing style of both texts"
    ),
    "joints": behaviour(
        "joints between sentences",
        "share of the possible joints between neighbouring sentences that tell something new and share an entity",
    ),
    "published": Metric(
        "published reward, of 2.98",
        "the published reward as a share of its maximum; it never looks at the source",
        share=True,
        over_checkpoints=True,
    ),
    "published_structure": behaviour(
        "published: structure", "words, length and unique words, the first three terms of the published reward"
    ),
    "published_coherence": behaviour(
        "published: coherence", "kinds of connectives, the fourth term of the published reward"
    ),
    "published_consistency": behaviour(
        "published: style consistency", "words that both texts share, the last term of the published reward"
    ),
}


#: The terms of each built-in reward.
TERMS = {
    "sound": {
        "coverage": "facts that are told",
        "inventions": "taken for sentences that state nothing of the source",
        "repeats": "taken for sentences that repeat",
        "lengths": "how well both lengths and their ratio fit",
        "style": "facts that are told in the prevailing style",
        "coherence": "joints between neighbouring sentences",
        "judge": "the mark that a judge model gives",
    },
    "paper": {
        "words": "both texts have a number of words within the limits",
        "length": "ratio of the lengths of the texts",
        "unique": "ratio of their unique words",
        "connectives": "kinds of connectives that are used",
        "shared": "words that both texts share",
    },
}
