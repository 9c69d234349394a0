"""What is trained, in which order: the stages and the checkpoints made of them."""

from __future__ import annotations

from engine.train.batches import Noise
from engine.train.network import Shape
from engine.train.stage import Stage

BLOCK_SIZE = 8
SEED = 1
SHAPE = Shape()

WARM = Stage("warm", Noise(block_size=1), steps=1000)
DIFFUSION = Stage(
    "diffusion", Noise(BLOCK_SIZE), steps=6000, batch=16, after="warm", carry_on=True, warm_up=0, cool_down=0.6
)
_TUNE = Noise(BLOCK_SIZE, run_share=0.6, spare_share=0.3)
MULTIBLOCK = Stage("multiblock", _TUNE, steps=1300, batch=16, after="diffusion", rate=0.01, cool_down=0.8)
DISTIL = Stage("distil", _TUNE, steps=1300, batch=16, after="diffusion", rate=0.01, cool_down=0.8, targets="decodes")

STAGES = (WARM, DIFFUSION, DISTIL, MULTIBLOCK)
CHECKPOINTS = {"arithmetic-base": DIFFUSION, "arithmetic-multiblock": MULTIBLOCK, "arithmetic": DISTIL}

DECODES = 10000  # training prompts that the base model decodes for DISTIL
POOL = 4096  # calibration prompts that ship
TEST = 512  # held-out prompts of the model cards
