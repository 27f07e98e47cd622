"""Turns a decorated Python function into a dataflow graph by running it once on proxies."""
