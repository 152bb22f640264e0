"""The best configuration of a space, and how it is known to be the best."""
