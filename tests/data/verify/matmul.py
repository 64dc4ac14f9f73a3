"""c = a b."""

import numpy as np

m, n, k = 33, 40, 70


def reference(a, b):
    return a @ b


def get_inputs():
    return [np.random.randn(m, k).astype(np.float32), np.random.randn(k, n).astype(np.float32)]
