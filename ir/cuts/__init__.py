"""How each dimension is cut over workgroups, waves and trips, and who shares what where registers lack."""
