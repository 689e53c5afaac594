"""The command ``symposium``: every program of the project under one name.

``symposium --help`` lists the commands; ``python -m flows.<program>`` and DVC's commands stay as they are.
"""
