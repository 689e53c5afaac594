"""Two writers see a part of a text each and write a short and a long summary, or the two halves of an introduction."""
