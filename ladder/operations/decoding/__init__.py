"""Decoding: attention of a few queries over a long cache of keys and values."""
