"""Energy: power logs scored by the rules of MLPerf Power, and the power of what was replayed."""
