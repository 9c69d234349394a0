"""How fast the engine is, beside independent code on the same checkpoint."""
