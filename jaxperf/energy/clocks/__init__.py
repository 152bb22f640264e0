"""Clocks and power limits: what they do to step time and energy, and which clocks waste least."""
