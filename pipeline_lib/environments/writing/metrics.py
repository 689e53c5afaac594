"""What is measured of two writers."""

from pipeline_lib.seam.metrics import Metric

METRICS = {
    "coverage": Metric("facts told", share=True, over_checkpoints=True, at_k="coverage"),
    "all_told": Metric("all facts told and nothing else", share=True, over_checkpoints=True, solves=True),
    "inventions": Metric(
        "sentences that do not follow", share=True, better="lower", behaviour=True, over_checkpoints=True
    ),
    "copied": Metric("sentences copied or repeated", share=True, better="lower", behaviour=True),
    "fitting": Metric("both lengths and their ratio as asked", share=True, behaviour=True, over_checkpoints=True),
    "complete": Metric("complete sentences", share=True, behaviour=True),
    "style": Metric("facts told in one style", share=True, behaviour=True),
    "joints": Metric("joints between sentences", share=True, behaviour=True),
    "published": Metric("published reward, of 2.98", share=True, over_checkpoints=True),
    "published_structure": Metric("published: structure", share=True, behaviour=True),
    "published_coherence": Metric("published: coherence", share=True, behaviour=True),
    "published_consistency": Metric("published: style consistency", share=True, behaviour=True),
}
