"""Dining philosophers: N agents share forks, and a meal needs two of them.

`table` holds thousands of episodes as arrays and `rules` moves them together,
`optimum` knows the best a perfectly coordinated table could do, `rewards` turns what happened into named terms,
`text` is what a language model reads and writes, `scripted` are policies without a model, and `runtime` puts it all
behind the `Environment` seam.  The rules follow DPBench (arXiv 2602.13255) with its faults mended; `rules` lists them.
"""
