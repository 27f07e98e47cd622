"""Kernels drawn at random as source text, and what is done with them: `draw`, `check`, `shrink`."""
