"""Attention: o and lse of q, k and v."""
