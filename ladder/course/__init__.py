"""Lessons, exercises, a class, and pages with a compiler."""
