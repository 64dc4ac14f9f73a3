"""y[row] = sum of max(x[row, i], 0)."""

import numpy as np

rows, columns = 5, 300


def reference(x):
    return np.maximum(x, 0).sum(axis=1)


def get_inputs():
    return [np.random.randn(rows, columns).astype(np.float32)]
