"""Regions as kernel IR: loops, conditions, warp roles, and the whole body in order."""
