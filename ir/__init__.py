"""The compiler's middle: a traced graph in, kernel IR out. `pipeline.py` is its contents page.

Imports nothing of the other packages: what a pass must know of a chip reaches it as a `Target` argument. Here lie what
all of it needs (errors, locations, dtypes, symbols, targets), and on top of all `pipeline.py`, `attempts.py` and
`lower_kernel.py`. Of the packages each imports those before it alone:

    kernel     The kernel IR: ops, builder and folding, text, interpreter, verifiers, and the passes over whole kernels
    schedule   Order and time of a loop's body: steps and what must precede what, modulo schedules, barriers
    dataflow   The dataflow graph: what a traced kernel means; operations, constraints, verifier, and what rewrites it
    layouts    Layouts, of values over lanes and registers and of tiles in shared memory: linear maps over bits
    functions  Functions of elements in kernel IR: arithmetic, casts, bits, functions of f64
    cuts       How each dimension is cut over workgroups, waves and trips, and who shares what where registers lack
    evaluator  The graph evaluator: what a kernel means, in NumPy, on whole arrays
    addresses  Where elements lie: addresses, masks and vectors, of arrays and of tiles in shared memory
    inference  Layout inference: which lane and register holds which element of every value, by which instructions
    grid       Workgroups: which tiles they take in which order, in clusters or in turn, and what they share of a sum
    lower      The values of a region as steps of kernel IR: one module per kind of operation
    staging    Which reads go through shared memory, and how their tiles get there
    regions    Regions as kernel IR: loops, conditions, warp roles, and the whole body in order
"""
