"""The values of a region as steps of kernel IR: one module per kind of operation."""
