"""Two programmers: a helper agent and a main agent write one function each, and the joined program is tested."""
