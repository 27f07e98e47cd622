"""Which reads go through shared memory, and how their tiles get there."""
