"""The world of abstracts: a thing with a problem, what work on it lacks, and a method that helps."""

from __future__ import annotations

from pipeline_lib.environments.writing.problems.world import Kind, World

PAPERS = World(
    name="papers",
    words={
        "hero": ("sensor", "robot", "antenna", "engine", "reactor", "camera"),
        "field": ("medicine", "biology", "physics", "chemistry", "geology", "farming"),
        "problem": ("noise", "drift", "decay", "leakage", "friction", "heat"),
        "gap": ("data", "theory", "tools", "labels", "models", "proofs"),
        "gain": ("speed", "accuracy", "range", "safety", "comfort", "control"),
        "method": ("filter", "graph", "kernel", "network", "shield", "buffer"),
        "data": ("images", "records", "signals", "maps", "letters", "samples"),
        "user": ("hospitals", "farms", "schools", "ports", "banks", "cities"),
    },
    verbs={},
    kinds={
        "field": Kind(
            ("the {hero} mattered/matters in {field}", "the field was/is {field}"),
            ("long known from {field}", "used in {field}"),
        ),
        "problem": Kind(
            ("the {hero} suffered/suffers from {problem}", "the problem was/is {problem}"),
            ("limited by {problem}", "prone to {problem}"),
        ),
        "gap": Kind(
            ("work on the {hero} lacked/lacks {gap}", "past work had/has no {gap}"),
            ("{gap} are missing", "no {gap} so far"),
        ),
        "aim": Kind(
            ("the {hero} needed/needs better {gain}", "the aim was/is better {gain}"),
            ("we target {gain}", "towards {gain}"),
        ),
        "method": Kind(
            ("the {hero} got/gets help from a {method}", "the method was/is a {method}"),
            ("we propose a {method}", "via a {method}"),
        ),
        "data": Kind(
            ("the {hero} was/is tested on {data}", "the tests used/use {data}"),
            ("evaluated with {data}", "we run it on {data}"),
        ),
        "use": Kind(
            ("the {hero} served/serves {user}", "the result served/serves {user}"),
            ("good news for {user}", "{user} benefit"),
        ),
    },
    entities=frozenset({"hero"}),
)
