"""The softmax of each row."""

import numpy as np

rows, columns = 3, 300


def reference(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def get_inputs():
    return [2 * np.random.randn(rows, columns).astype(np.float32)]
