"""Our kernels beside others' attention, in one run: who takes part, what they cost, how exact they are."""
