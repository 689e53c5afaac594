"""The world of posts: a person did something with a thing, and asks what to do now."""

from __future__ import annotations

from pipeline_lib.environments.writing.problems.world import Kind, World

POSTS = World(
    name="posts",
    words={
        "hero": ("Mara", "Jonas", "Ines", "Tariq", "Lena", "Omar"),
        "thing": ("boat", "car", "piano", "bike", "tent", "lamp"),
        "cause": ("storm", "fire", "flood", "debt", "theft", "accident"),
        "place": ("market", "lake", "station", "school", "garden", "harbor"),
        "month": ("March", "April", "May", "June", "July", "August"),
        "other": ("sister", "brother", "boss", "neighbor", "landlord", "cousin"),
        "mood": ("angry", "sad", "proud", "worried", "glad", "jealous"),
        "act": ("apologize", "pay", "leave", "wait", "call", "explain"),
    },
    verbs={
        "deed": (
            ("sold", "sells", "sell"),
            ("lost", "loses", "lose"),
            ("painted", "paints", "paint"),
            ("traded", "trades", "trade"),
            ("rented", "rents", "rent"),
            ("repaired", "repairs", "repair"),
        ),
    },
    kinds={
        "deed": Kind(
            ("{hero} {deed} the {thing}", "the {thing} was/is {deed:past} by {hero}"),
            ("i {deed:past} my {thing}", "my {thing} got {deed:past}"),
        ),
        "ask": Kind(
            ("{hero} asked/asks whether to {act}", "the question was/is whether to {act}"),
            ("should i {act}", "do i {act} now"),
        ),
        "cause": Kind(
            ("{hero} did/does it because of the {cause}", "the reason was/is the {cause}"),
            ("blame the {cause}", "all because of the {cause}"),
        ),
        "place": Kind(
            ("{hero} did/does it at the {place}", "it happened/happens at the {place}"),
            ("we met at the {place}", "down at the {place}"),
        ),
        "month": Kind(
            ("{hero} did/does it in {month}", "it was/is in {month}"),
            ("back in {month}", "that was {month}"),
        ),
        "mood": Kind(
            ("{hero} made/makes the {other} {mood}", "it made/makes the {other} {mood}"),
            ("my {other} got {mood}", "{mood} says my {other}"),
        ),
    },
    entities=frozenset({"hero", "thing", "other"}),
)
