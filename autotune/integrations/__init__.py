"""Tuned attention in libraries that people train and serve with. Each is imported when it is asked for."""
