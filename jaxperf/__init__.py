"""Trace-driven performance modelling of training runs, differentiable, in JAX."""
