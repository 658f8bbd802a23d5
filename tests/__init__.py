"""The project's tests. NumPy is imported after this, here and in the processes that tests start."""

import os

from autotune.core.blas import ONE_THREAD

# References are small products by the thousand, several at a time: BLAS' idle threads spin longer than these take.
os.environ.update({name: os.environ.get(name, number) for name, number in ONE_THREAD.items()})
