"""Functions of elements in kernel IR: arithmetic, casts, bits, functions of f64."""
