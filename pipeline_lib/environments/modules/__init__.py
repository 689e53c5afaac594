"""Several files by several agents, joined into one program: settings, problems, reward, metrics, audit."""
