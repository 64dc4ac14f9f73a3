"""What holds for all tests, and for the processes that they start."""

import os

# pytest-xdist gives each core a worker; OpenMP's threads of several workers would spin on each other's cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
