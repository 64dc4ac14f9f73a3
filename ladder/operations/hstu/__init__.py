"""HSTU attention: attention without softmax over jagged q, k and v, and its gradients."""
