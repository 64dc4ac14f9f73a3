"""Where stages and other kernels run, and whether they are right."""
