"""What a person sees: terminal tables, JSON, a Chrome trace, and an HTML page."""
