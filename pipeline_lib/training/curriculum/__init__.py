"""The curriculum: the order of training problems.

*Gates* decide whether a group has a gradient and whether a level is mastered.  *Samplers* choose the next problems:
`Epochs` in random order, `Levels` from easy to hard ones, with repetition of some easy ones, `Turns` in random order
with more and more turns per episode.
"""
