"""Order and time of a loop's body: steps and what must precede what, modulo schedules, barriers."""
