"""What to learn next: two small seams.

*Gates* answer yes or no: is this group worth learning from, is this level mastered?  *Samplers* name the next problems.
`Epochs` is the plain sampler; `Levels` climbs from easy problems to hard ones and comes back to the easy ones.
"""
