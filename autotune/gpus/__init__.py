"""What is known of GPUs: published figures and their sources, rates, and which one is in this machine."""
