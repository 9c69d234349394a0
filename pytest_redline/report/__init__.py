"""A certificate as text: no arithmetic beyond formatting."""
