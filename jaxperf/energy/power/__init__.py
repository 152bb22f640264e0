"""The power of a timeline: by task, class, rank and phase, on any grid, at any clock."""
