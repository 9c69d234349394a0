"""Models: what the engine asks of one, and the ones that ship.

::

    base.py        the interface: Query in, Answer out
    scripted.py    weightless models for tests and demonstrations, numpy only
    propose.py     logits to (token, confidence): greedy and sampled, the only home of both
    packing.py     a batch of unequal queries as packed rows
    sdar.py        SDAR (Qwen3-like) in plain PyTorch with a paged cache
    checkpoint.py  a Hugging Face directory to a loaded model
"""
