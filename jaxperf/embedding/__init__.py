"""Embedding tables over a hierarchy of memories: what they need, where they go, how many nodes."""
