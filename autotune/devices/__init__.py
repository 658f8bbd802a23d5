"""Devices behind one protocol, each in a worker process of its own: what verifies a candidate, then times it."""
