"""Devices, assemblers, arrays, the compile cache, launching, and the instruction emulators."""
