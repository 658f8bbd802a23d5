"""Builds: finding compilers, compiling rendered sources, and the cache of what was built."""
