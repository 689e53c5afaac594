"""What the names of reward terms mean, for the report."""

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
