"""How far the AMDGCN cycle model is from others, as last measured. Written by `benchmarks/cycle_model.py --update`."""

MCA = {"arithmetic": (180, 1.0, 1.0, 1.4), "with memory": (183, 1.0, 1.48, 6.625)}
"""Our clocks over llvm-mca's, per basic block of one wave: blocks, 10th percentile, median, 90th percentile."""
PUBLISHED = {"MI325X": (1.1, 1.33), "MI355X": (1.2, 1.32)}
"""Product → lowest and highest predicted over best published TFLOP/s of bf16 GEMMs: our text, which is not the text that
was measured, at the peak clock."""
