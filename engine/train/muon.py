"""The optimiser: orthogonalised momentum (Muon) for matrices, AdamW for the embedding and the norms.

Muon replaces a matrix's momentum by the nearest semi-orthogonal matrix, found by a few Newton-Schulz iterations, so
that every direction of it moves alike. Matrices of one shape are iterated together. With several processes each
iterates its share and the results are summed.

Source: K. Jordan and others, "Muon: An optimizer for hidden layers in neural networks" (2024), whose polynomial is
used; Adam: Kingma and Ba (2015), weight decay as in Loshchilov and Hutter (2019).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

_POLYNOMIAL = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


def orthogonalise(stack: Tensor) -> Tensor:
    """Return semi-orthogonal matrices near those of ``[n, rows, columns]``, rows <= columns not required."""
    tall = stack.shape[1] > stack.shape[2]
    x = stack.mT if tall else stack
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    first, third, fifth = _POLYNOMIAL
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = first * x + (third * gram + fifth * gram @ gram) @ x
    found: Tensor = x.mT if tall else x
    return found


class Muon:
    """Both optimisers, one step.

    Parameters
    ----------
    network
        Whose parameters to move.
    matrix_rate, other_rate
        Peak learning rates of Muon and AdamW.
    rank, world
        This process and how many there are; gradients must be equal in all of them.
    """

    def __init__(
        self, network: nn.Module, matrix_rate: float, other_rate: float, rank: int = 0, world: int = 1
    ) -> None:
        self.rates = (matrix_rate, other_rate)
        self.rank, self.world = rank, world
        self.momentum, self.decay = 0.95, 0.01
        named = list(network.named_parameters())
        self.matrices = [(name, each) for name, each in named if each.dim() == 2 and "embed" not in name]
        chosen = {name for name, _ in self.matrices}
        self.others = [(name, each) for name, each in named if name not in chosen]
        self.velocity = {name: torch.zeros_like(each) for name, each in self.matrices}
        self.first = {name: torch.zeros_like(each) for name, each in self.others}
        self.second = {name: torch.zeros_like(each) for name, each in self.others}
        self.steps = 0

    def state(self) -> dict[str, Any]:
        """Return everything that the next step depends on."""
        return {"velocity": self.velocity, "first": self.first, "second": self.second, "steps": self.steps}

    def restore(self, state: dict[str, Any]) -> None:
        """Take a state back."""
        self.velocity, self.first, self.second = state["velocity"], state["first"], state["second"]
        self.steps = state["steps"]

    @torch.no_grad()
    def step(self, scale: float) -> None:
        """Move the parameters along their gradients, at `scale` times the peak rates."""
        self.steps += 1
        groups: dict[torch.Size, list[tuple[nn.Parameter, Tensor]]] = {}
        for name, parameter in self.matrices:
            assert parameter.grad is not None
            velocity = self.velocity[name].lerp_(parameter.grad, 1 - self.momentum)
            direction = parameter.grad.lerp(velocity, self.momentum)
            groups.setdefault(parameter.shape, []).append((parameter, direction))
        updates = []
        for members in groups.values():
            stack = torch.stack([direction for _, direction in members])
            update = torch.zeros_like(stack)
            update[self.rank :: self.world] = orthogonalise(stack[self.rank :: self.world])
            updates.append(update)
        if self.world > 1:
            flat = torch.cat([update.flatten() for update in updates])
            dist.all_reduce(flat)
            updates = [
                part.view_as(update)
                for part, update in zip(torch.split(flat, [update.numel() for update in updates]), updates, strict=True)
            ]
        rate = self.rates[0] * scale
        for members, update in zip(groups.values(), updates, strict=True):
            for (parameter, _), each in zip(members, update, strict=True):
                parameter.mul_(1 - rate * self.decay)
                parameter.sub_(each, alpha=rate * max(1.0, each.shape[0] / each.shape[1]) ** 0.5)
        self._adam(self.rates[1] * scale)

    def _adam(self, rate: float) -> None:
        for name, parameter in self.others:
            assert parameter.grad is not None
            first = self.first[name].lerp_(parameter.grad, 0.1)
            second = self.second[name].lerp_(parameter.grad.square(), 0.05)
            first = first / (1 - 0.9**self.steps)
            second = second / (1 - 0.95**self.steps)
            parameter.sub_(first / (second.sqrt() + 1e-8), alpha=rate)
