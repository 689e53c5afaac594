"""Two writers each see a part of a text and write a short and a long summary, or the two halves of an introduction."""
