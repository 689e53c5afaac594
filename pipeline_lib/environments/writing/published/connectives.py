"""The connectives of the published writing reward, as data: which phrase stands for which of its twelve categories.

The published list (LLM_Collab_Writing, arXiv 2508.04652) has 279 entries; a phrase may stand in several categories, and
is looked for anywhere in the text, inside of words too.  A phrase that contains another one of its category can
therefore never decide anything, so those are left out here: 266 entries remain, with the same categories found in every
text.
"""

from __future__ import annotations

#: Phrases by their categories.
_BY_CATEGORIES = {
    "cause_effect": (
        "accordingly; as a consequence; as a result; because of this; consequently; due to this; ergo; hence; "
        "in consequence; it follows that; on account of; owing to; resulting from; so; thanks to; thereby; "
        "therefore; this brings about; this causes; this leads to; this results in; thus; wherefore"
    ),
    "cause_effect sequence": "then",
    "comparison": (
        "along the same lines; as with; by analogy; comparable to; equally; in comparison; in similar "
        "fashion; just as; just like; much like"
    ),
    "concession": "despite; even if; in spite of; regardless of; though",
    "condition": (
        "as long as; assuming that; given that; had; if; in case; in the event that; on condition that; or "
        "else; provided that; should; so long as; supposing that; unless; were; whether or not"
    ),
    "contrast": (
        "alternatively; although; at any rate; but; by contrast; contrarily; conversely; despite this; even "
        "so; even though; in any case; in contrast; in opposition; instead; on the contrary; on the other "
        "hand; rather; regardless"
    ),
    "contrast concession": (
        "all the same; be that as it may; however; nevertheless; nonetheless; notwithstanding; still; whereas; yet"
    ),
    "contrast concession time": "while",
    "contrast condition": "otherwise",
    "elaboration": (
        "additionally; along with; also; as well as; besides; comparatively; coupled with; equally important; "
        "furthermore; in addition; moreover; not only; together with; what is more"
    ),
    "elaboration comparison": (
        "analogously; by the same token; correspondingly; in like manner; in the same way; likewise; similarly"
    ),
    "emphasis": (
        "absolutely; as a matter of fact; certainly; definitely; evidently; indubitably; manifestly; "
        "naturally; of course; positively; significantly; surely; to be sure; undeniably; undoubtedly; "
        "unquestionably; without doubt"
    ),
    "emphasis concession": "admittedly; granted",
    "examples": (
        "above all; as an illustration; as evidence; case in point; chiefly; especially; for example; for "
        "instance; in particular; including; mainly; markedly; most importantly; namely; particularly; "
        "specifically; such as; to demonstrate; to exemplify; to illustrate"
    ),
    "examples emphasis": "notably",
    "examples sequence": "primarily",
    "explanation": (
        "actually; at its core; in other words; more precisely; simply put; specifically speaking; stated "
        "differently; that is; the point is; to clarify; to put it another way; to put it simply; to "
        "rephrase; what this means is"
    ),
    "explanation emphasis": "clearly; in fact; indeed; obviously",
    "explanation summary": "basically; essentially; fundamentally; in essence",
    "sequence": (
        "after that; afterward; at the outset; concurrently; first; following this; in the beginning; in the "
        "meantime; initially; lastly; meanwhile; next; second; third; to begin with; to start with"
    ),
    "sequence summary": "in conclusion; in summary; in the end; to conclude; to summarize; ultimately",
    "sequence time": "at the same time; finally; later; simultaneously; subsequently",
    "summary": (
        "after all; all in all; briefly; in brief; in short; in the final analysis; on the whole; overall; "
        "the bottom line is; to sum up; when all is said and done"
    ),
    "time": (
        "after; as; before; currently; during; earlier; eventually; formerly; immediately; lately; nowadays; "
        "presently; previously; recently; since; until; when"
    ),
}

#: The phrases of each category.
CONNECTIVES: dict[str, tuple[str, ...]] = {}
for _categories, _phrases in _BY_CATEGORIES.items():
    for _category in _categories.split():
        CONNECTIVES[_category] = (*CONNECTIVES.get(_category, ()), *_phrases.split("; "))

_STOPWORDS = (
    "a all also an and any are as at bad be been being both but by can could did do does each few first for "
    "from good great had has have he her here him his how i if in is it its just last left little long low "
    "many may me might more most much must my new no not now of old on only or other our own right same shall "
    "should so some such than that the their them then there these they this those to too us very was we were "
    "what when where which who why will with would you your"
)

#: Words that do not count for the overlap of two texts.
STOPWORDS = frozenset(_STOPWORDS.split())
