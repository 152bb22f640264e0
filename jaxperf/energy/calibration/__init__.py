"""The numbers of the power model, fitted to a measured power log, and what the log cannot tell."""
