"""The code that runs inside a jail.  These files are copied into jails, so they use relative imports and import
nothing else of the library.
"""
