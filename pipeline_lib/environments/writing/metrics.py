"""The metrics of two writers."""

from pipeline_lib.environment_api.metrics import Metric

METRICS = {
    "coverage": Metric(
        "facts told",
        share=True,
        over_checkpoints=True,
        at_k="coverage",
        about="share of the facts of the source that the two texts tell",
    ),
    "all_told": Metric(
        "all facts told and nothing else",
        share=True,
        over_checkpoints=True,
        solves=True,
        about="every fact is told, none twice, and no sentence says anything else",
    ),
    "inventions": Metric(
        "sentences that do not follow",
        share=True,
        better="lower",
        behaviour=True,
        over_checkpoints=True,
        about="share of the sentences that do not follow from the source",
    ),
    "copied": Metric(
        "sentences copied or repeated",
        share=True,
        better="lower",
        behaviour=True,
        about="share of the sentences that are copies of the source or repeat what was said",
    ),
    "fitting": Metric(
        "both lengths and their ratio as asked",
        share=True,
        behaviour=True,
        over_checkpoints=True,
        about="the lengths of both texts, and their ratio, lie within the limits",
    ),
    "complete": Metric(
        "complete sentences",
        share=True,
        behaviour=True,
        about="share of the sentences that begin and end as sentences do",
    ),
    "style": Metric(
        "facts told in one style",
        share=True,
        behaviour=True,
        about="share of the facts that are told in the prevailing style of both texts",
    ),
    "joints": Metric(
        "joints between sentences",
        share=True,
        behaviour=True,
        about="share of the possible joints between neighbouring sentences that tell something new and share an entity",
    ),
    "published": Metric(
        "published reward, of 2.98",
        share=True,
        over_checkpoints=True,
        about="the published reward as a share of its maximum; it never looks at the source",
    ),
    "published_structure": Metric(
        "published: structure",
        share=True,
        behaviour=True,
        about="words, length and unique words, the first three terms of the published reward",
    ),
    "published_coherence": Metric(
        "published: coherence",
        share=True,
        behaviour=True,
        about="kinds of connectives, the fourth term of the published reward",
    ),
    "published_consistency": Metric(
        "published: style consistency",
        share=True,
        behaviour=True,
        about="words that both texts share, the last term of the published reward",
    ),
}
