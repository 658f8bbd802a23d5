"""What is computed: ops with their fields and tensors, float64 references, and how far a result may be off."""
