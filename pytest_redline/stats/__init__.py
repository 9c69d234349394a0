"""Statistics of the gate: pure functions of integer counts and arrays; no I/O, no pytest, no torch."""
