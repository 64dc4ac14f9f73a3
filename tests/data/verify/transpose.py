"""y = x transposed."""

import numpy as np

rows, columns = 40, 70


def reference(x):
    return np.ascontiguousarray(x.T)


def get_inputs():
    return [np.random.randn(rows, columns).astype(np.float32)]
