"""The kernel IR: ops, builder and folding, text, interpreter, verifiers, and the passes over whole kernels."""
