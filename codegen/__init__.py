"""Targets, instruction tables and the two back ends: kernel IR in, AMDGCN or PTX text out."""
