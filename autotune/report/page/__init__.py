"""A database as one page to look at: what `autotune report` writes."""
