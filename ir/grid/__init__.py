"""Workgroups: which tiles they take in which order, in clusters or in turn, and what they share of a sum."""
