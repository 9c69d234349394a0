"""Reading a checkpoint's weights: safetensors, never a pickle and never code.

Headers are read when a directory is opened; a tensor's bytes only when it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from redline_engine.models.surface import LFS_POINTER, CheckpointError, broken_link, read_json

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_TYPES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # types of weights that are read, and their bytes
_SHOWN = 8  # faults of one kind that are spelt out


def refuse(where: Path, faults: Sequence[str]) -> None:
    """Raise if there are faults."""
    if faults:
        raise CheckpointError("\n".join(f"{where}: {fault}" for fault in faults))


def shortened(faults: Iterable[str]) -> list[str]:
    """The first faults of a kind, and how many more there are."""
    found = list(faults)
    return found if len(found) <= _SHOWN + 1 else [*found[:_SHOWN], f"... and {len(found) - _SHOWN:,} more like these"]


class Stored(NamedTuple):
    """A tensor as its file's header describes it; `type` is the file's name of it, such as BF16."""

    file: Path
    shape: tuple[int, ...]
    type: str

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * _TYPES.get(self.type, 1)


class TensorFiles:
    """The weights of a directory: one file, or the shards that an index names.

    Raises
    ------
    CheckpointError
        No weights, or pickled ones only; a shard is missing, cut short, or not what the index says; a tensor stands
        twice, or is of a type that is no plain weight (quantised checkpoints).
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.tensors: dict[str, Stored] = {}
        faults = []
        indexed = self._files()
        for file in sorted(set(indexed.values())) if isinstance(indexed, dict) else indexed:
            try:
                headers = _headers(directory / file)
            except CheckpointError as error:
                faults += str(error).splitlines()
                continue
            if isinstance(indexed, dict):
                named = {key for key, shard in indexed.items() if shard == file}
                lacking, index = sorted(named - set(headers)), directory / _INDEX
                faults += shortened(f"{index}: says {key} is in {file}, where it is not" for key in lacking)
            for key in sorted(set(headers) & set(self.tensors)):
                faults.append(f"{directory / file}: tensor {key} is in {self.tensors[key].file.name} too")
            self.tensors |= headers
        odd = {key: each for key, each in self.tensors.items() if each.type not in _TYPES}
        faults += shortened(
            f"{each.file}: tensor {key} has type {each.type}; read are {', '.join(_TYPES)}: take the plain checkpoint, "
            "and a `weights` knob for fewer bits"
            for key, each in odd.items()
        )
        if faults:
            raise CheckpointError("\n".join(faults))

    def _files(self) -> dict[str, str] | list[str]:
        """Tensor to shard, where there is an index; else the one file."""
        single, index = self.directory / _SINGLE, self.directory / _INDEX
        for path in (single, index):
            refuse(path, [fault] if (fault := broken_link(path)) else [])
        if not index.exists():
            if single.exists():
                return [_SINGLE]
            loose = sorted(path.name for path in self.directory.glob("*.safetensors"))
            pickled = sorted(path.name for pattern in _PICKLES for path in self.directory.glob(pattern))
            if loose:
                fault = f"holds {loose[0]} but neither {_SINGLE} nor {_INDEX}, which says what is in which shard"
            elif pickled:
                fault = (
                    f"holds pickled weights ({pickled[0]}), which could run code when read; only safetensors are read: "
                    "convert them with save_pretrained, or download the safetensors"
                )
            else:
                fault = f"holds no weights; needed is {_SINGLE}, or {_INDEX} with its shards"
            raise CheckpointError(f"{self.directory}: {fault}")
        if single.exists():
            raise CheckpointError(f"{self.directory}: holds both {_SINGLE} and {_INDEX}; remove the one that is stale")
        shards = read_json(index).get("weight_map")
        if not isinstance(shards, dict) or not shards or not all(isinstance(each, str) for each in shards.values()):
            raise CheckpointError(f"{index}: has no weight_map from tensors to files")
        outside = sorted({each for each in shards.values() if Path(each).name != each})
        refuse(index, [f"names {each!r}, which is not a file beside it" for each in outside])
        absent = [each for each in sorted(set(shards.values())) if not (self.directory / each).exists()]
        lost = {each: broken_link(self.directory / each) or "is not there; download it" for each in absent}
        refuse(index, shortened(f"shard {each} {fault}" for each, fault in lost.items()))
        return shards

    @contextmanager
    def reader(self, device: str) -> Iterator[Callable[[torch.dtype, str], Tensor]]:
        """Keep the files open to read tensors to a device, by type and name.

        Raises
        ------
        CheckpointError
            A tensor that is read holds a number that is not finite, or that the type cannot hold.
        """
        with ExitStack() as stack:
            files = {
                file: stack.enter_context(safe_open(file, framework="pt", device=device))
                for file in {each.file for each in self.tensors.values()}
            }

            def read(dtype: torch.dtype, key: str) -> Tensor:
                file = self.tensors[key].file
                tensor: Tensor = files[file].get_tensor(key)
                # A copy in any case: on the CPU the tensor is a view of the file, which may change, and lies at an
                # address by which kernels sum in another order.
                taken = tensor.to(dtype, copy=device == "cpu")
                if not _is_finite(taken):
                    fault = (
                        f"numbers that {str(dtype).removeprefix('torch.')} cannot hold; choose another dtype"
                        if _is_finite(tensor)
                        else "NaN or infinite weights; download the file again, or take a checkpoint that is whole"
                    )
                    raise CheckpointError(f"{file}: tensor {key} holds {fault}")
                return taken

            yield read


def _is_finite(tensor: Tensor) -> bool:
    """Is every number finite; the extremes show NaN too, overflow in no type and take one pass without a copy."""
    return tensor.numel() == 0 or all(math.isfinite(end.item()) for end in torch.aminmax(tensor))


def _headers(path: Path) -> dict[str, Stored]:
    try:
        with path.open("rb") as stream:
            if stream.read(len(LFS_POINTER)) == LFS_POINTER:
                raise CheckpointError(f"{path}: is a Git LFS pointer, not the weights; fetch them with git lfs pull")
        with safe_open(path, framework="pt") as file:
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118
            return {key: Stored(path, tuple(each.get_shape()), each.get_dtype()) for key, each in slices.items()}
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: is not a whole safetensors file ({error}); download it again") from error
