"""Modules that cost no more than the operations they consist of.

At batch 1 an operation takes a few microseconds. Reading a part of a module through `nn.Module` takes 0.7 more, calling
it 0.8, and each happens thirty times in a forward of four layers.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

TURNED = 2**22  # elements: weights that have fewer are turned


class Direct(nn.Module):
    """A module whose parts are plain attributes, and a call of which is one of its ``forward`` unless it has hooks.

    Its weights hold anything until they are set.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in self._modules:
            self.__dict__[name] = value

    def reset_parameters(self) -> None:
        """Draw no weights: they are read. On the meta device a draw loads PyTorch's compiler, which takes a second."""

    def settle(self) -> None:
        """Forget what was derived from weights; to be called when they have changed."""
        for kind in type(self).__mro__:
            for name, value in vars(kind).items():
                if isinstance(value, cached_property):
                    self.__dict__.pop(name, None)

    def __call__(self, *inputs: Any) -> Any:
        """Run ``forward``, and hooks if there are any."""
        return super().__call__(*inputs) if self._forward_pre_hooks or self._forward_hooks else self.forward(*inputs)


class Embedding(Direct, nn.Embedding):
    """Rows of a table."""


class Linear(Direct, nn.Linear):
    """A linear layer without bias for rows ``[T, columns]``.

    In float32 on a CPU a weight that is not large is best kept column by column (`settle`): eight rows are then
    multiplied in half the time, and many in the same. Large ones do not gain from it, nor do other types.
    """

    def __init__(self, columns: int, rows: int) -> None:
        super().__init__(columns, rows, bias=False)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "weight":
            self.__dict__.pop("turned", None)

    def settle(self) -> None:
        """Lay the weight column by column, if that is faster."""
        super().settle()
        weight = self.weight.detach()
        if weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() < TURNED:
            self.weight = nn.Parameter(weight.t().contiguous().t(), requires_grad=False)

    @cached_property
    def turned(self) -> Tensor:
        """``[columns, rows]``, the weight's transpose."""
        return self.weight.detach().t()

    def forward(self, x: Tensor) -> Tensor:
        """Multiply."""
        return torch.mm(x, self.turned)

    def add(self, x: Tensor, onto: Tensor) -> None:
        """Add the product to `onto` ``[T, rows]``, in place and in one operation."""
        onto.addmm_(x, self.turned)
