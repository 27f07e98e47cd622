"""The dataflow graph: what a traced kernel means; operations, constraints, verifier, and what rewrites it."""
