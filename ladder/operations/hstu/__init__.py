"""HSTU attention: o of jagged q, k and v without a softmax, and its gradients."""
