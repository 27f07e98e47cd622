"""Layouts, of values over lanes and registers and of tiles in shared memory: linear maps over bits."""
