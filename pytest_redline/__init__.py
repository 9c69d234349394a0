"""Redline: certify faster LLM serving configurations against a reference, as a pytest plugin."""
