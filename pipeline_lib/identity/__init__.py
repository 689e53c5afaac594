"""What a result depends on: code, input files, settings and libraries.

All stored results use this one definition: DVC's stages, the scratch folders of training, cached values, tracking and
the report (`tasks.identity.stages` defines what each stage runs).  Digests never include a path, a time or a host.
"""
