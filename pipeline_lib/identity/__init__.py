"""Everything that a result depends on: code, input files, settings and libraries.

DVC's stages, the scratch folders of training, cached values, tracking and the report all use this definition
(`tasks.identity.stages` defines the code of each stage).  Digests never include a path, a time or a host.
"""
