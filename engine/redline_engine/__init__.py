"""Block-diffusion decoding engine of Redline.

One idea sets it apart: a whole grid of configurations decodes together. What a model says depends only on the tokens
it sees, so configurations that stand in the same decode state of a prompt share one forward.

::

    config.py    what may be asked for: ModelSpec (once, at load) and DecodeKnobs (per configuration)
    request.py   prompts in, replies out, and what is refused
    templates.py the turns around a text prompt of a chat model
    engine.py    Engine.generate, Engine.step: admit -> forward -> advance -> release. Start reading here
    lane.py      the walkers of a block size and the states they stand in, and the way from the one to the other
    walker.py    one configuration on one prompt: the multi-block state machine, many walkers as the rows of arrays
    table.py     the arrays that walkers are rows of
    replies.py   reading a reply, its text and its accounting off a row
    accept.py    the acceptance rule, in its only home
    edits.py     resolved tokens of the open block that are replaced, until it is stable
    states.py    the decode states of a prompt, what the model said in each, and the trie of blocks behind them
    stops.py     where a stop string ends a reply
    trace.py     what a request cost; tokens per forward is defined there, once
    precision.py weights in fewer bits: bfloat16, int8, int4, and what share of the bytes each takes
    models/      the interface of a model; SDAR and LLaDA2 in plain PyTorch; weightless models for tests

`redline_engine.config` needs the standard library alone, walkers and states need numpy, and only a model with weights
needs torch. Nothing here knows about pytest or about certificates.
"""
