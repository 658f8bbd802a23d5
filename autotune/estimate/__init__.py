"""How long a candidate would take on a GPU that is not here: occupancy, counted work, and the model over both.

`examine.estimate_candidate` does it all for one candidate; `model.predict` is the model, `counting.count` gets its
counts from short traced runs, and `fallback.estimate` serves where they fail.
"""
