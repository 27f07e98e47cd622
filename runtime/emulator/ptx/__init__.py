"""The PTX emulator: text for sm_80 to sm_90a on NumPy arrays, its checks and its clocks."""
