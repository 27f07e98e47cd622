"""The AMDGCN emulator: text of CDNA kernels on NumPy arrays, its checks and its clocks."""
