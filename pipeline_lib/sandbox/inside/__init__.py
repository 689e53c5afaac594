"""What runs inside a jail.  These files stand alone: they are copied into jails and import only each other, by names
that do not say where they lie.
"""
