"""What users get of what was found: the best configuration, a callable kernel, an exported file."""
