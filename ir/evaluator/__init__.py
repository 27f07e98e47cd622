"""The graph evaluator: what a kernel means, in NumPy, on whole arrays."""
