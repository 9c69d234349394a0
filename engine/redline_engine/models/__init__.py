"""Models: what the engine asks of one, and the ones that ship.

::

    base.py        the interface: Batch in, Answer out
    scripted.py    weightless models for tests and demonstrations, numpy only
    propose.py     logits to (token, confidence): greedy and sampled, the only home of both
    packing.py     a batch of unequal queries as packed rows
    network.py     the network of all families in plain PyTorch, with a paged cache
    parts.py       a batch in parts, one for each thread of the processor
    graphs.py      its steps in a few fixed shapes, which CUDA records and replays
    attention.py   what a layer does besides its MLP
    modules.py     linear layers, and modules without detours
    experts.py     routers and experts of SDAR-MoE and LLaDA2
    checkpoint.py  a Hugging Face directory to a loaded model
    reading.py     its safetensors
    families.py    its config.json: which family, what shape
    settings.py    values of config.json, and what is wrong with them
    rotary.py      its rotary settings, wherever they stand
    implemented.py its keys that change the arithmetic, and what is implemented of each
    keys.py        its tensors' names, to the network's weights and back
    tokens.py      its mask, end tokens and block size
    surface.py     its JSON, and what can be told of it without its network
    memory.py      what memory it takes, before a weight is read
"""
