"""Lessons' outputs, slides, the site with its live pages, and translations."""
