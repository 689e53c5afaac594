"""Dining philosophers: N agents share forks, and a meal needs two of them.

`table` holds thousands of episodes as arrays, and `rules` moves them together.  `optimum` computes the best result of a
perfectly coordinated table.  `rewards` turns the events into named terms.  `text` defines prompts and answers,
`scripted` has policies without a model, and `runtime` implements `Environment`.  The rules follow DPBench (arXiv
2602.13255) without its faults, which `rules` lists.
"""
