"""How the bundled checkpoints were made: word problems, tokenizer, block-diffusion training, export, measurement.

``python -m engine.train --out DIR`` does everything, from nothing to three checkpoints with their cards; killed, it
goes on where it was. Start reading in `pipeline.py`. Nothing here is imported by the engine.
"""
