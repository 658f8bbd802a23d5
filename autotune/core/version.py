"""The package's version: the wheel's, the one that records name, and `autotune.__version__`."""

__version__ = "0.1.0"
