"""Symbols, dtypes, errors, the dataflow graph, layouts, the scheduler and the kernel IR.

Imports nothing of the other packages: what a pass must know of a chip reaches it as a `Target` argument.
"""
