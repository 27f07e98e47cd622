"""Layout inference: which lane and register holds which element of every value, by which instructions."""
