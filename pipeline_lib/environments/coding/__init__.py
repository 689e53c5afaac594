"""Two programmers: a helper and a main agent write one function each, and the program they make is tested."""
