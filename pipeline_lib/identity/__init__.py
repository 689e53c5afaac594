"""What a result depends on: the code that runs, the files that are read, the settings that decide, the libraries.

One idea, used wherever something is remembered: DVC's stages, the scratch folders of training, cached values, tracking
and the report (`tasks.identity.stages` says which stage runs what).  Digests never cover a path, a time or a host.
"""
