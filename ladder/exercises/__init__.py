"""Exercises: a rung's kernel with a gap, hints, and a check that says what is wrong in words."""
