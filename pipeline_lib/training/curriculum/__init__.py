"""The curriculum: which problems come next, behind two small interfaces.

*Gates* answer yes or no: is this group worth learning from, is this level mastered?  *Samplers* choose the next
problems.  `Epochs` is the plain sampler; `Levels` goes from easy problems to hard ones and repeats some easy ones.
"""
