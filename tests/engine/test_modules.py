"""Linear layers multiply by the weight that they hold, however it lies; a part of a module is the one set last."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from redline_engine.models import modules  # noqa: E402
from redline_engine.models.modules import Direct, Linear  # noqa: E402


def linear(dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    layer = Linear(24, 40).requires_grad_(False)
    layer.weight.normal_(generator=generator)
    return layer.to(dtype), torch.randn(7, 24, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("most", [0, modules.TURNED])
def test_a_linear_layer_multiplies_and_adds(monkeypatch, dtype, most):
    monkeypatch.setattr(modules, "TURNED", most)
    layer, x = linear(dtype)
    layer.settle()
    expected = functional.linear(x.double(), layer.weight.double())
    near = {"atol": 1e-5, "rtol": 1e-5} if dtype == torch.float32 else {"atol": 1e-1, "rtol": 1e-2}
    torch.testing.assert_close(layer(x).double(), expected, **near)
    onto = torch.ones(7, 40, dtype=dtype)
    layer.add(x, onto)
    torch.testing.assert_close(onto.double(), expected + 1, **near)


def test_only_small_float32_weights_on_a_cpu_are_turned_and_none_is_kept_twice(monkeypatch):
    for dtype, most, turned in [(torch.float32, 961, True), (torch.float32, 960, False), (torch.bfloat16, 961, False)]:
        monkeypatch.setattr(modules, "TURNED", most)
        layer, x = linear(dtype)
        before = layer.weight.clone()
        layer.settle()
        layer(x)
        assert layer.weight.equal(before)
        assert layer.weight.shape == (40, 24)
        assert layer.weight.stride() == ((1, 40) if turned else (24, 1))
        assert layer.turned.data_ptr() == layer.weight.data_ptr()


def test_a_weight_that_changes_after_use_is_the_one_that_is_multiplied():
    layer, x = linear()
    layer.settle()
    first = layer(x)
    layer.weight *= 2
    assert layer(x).equal(2 * first)
    layer.weight = nn.Parameter(-layer.weight, requires_grad=False)
    assert layer(x).equal(-2 * first)
    layer.load_state_dict({"weight": torch.zeros(40, 24)})
    assert not layer(x).any()


class Doubled(Direct):
    def __init__(self):
        super().__init__()
        self.part = Linear(3, 3)

    def forward(self, x):
        return 2 * self.part(x)


def test_a_part_is_the_one_that_was_set_last():
    whole, x = Doubled(), torch.ones(1, 3)
    assert [name for name, _ in whole.named_modules()] == ["", "part"]
    assert list(whole.state_dict()) == ["part.weight"]
    other = copy.deepcopy(whole)
    assert other.part is not whole.part
    assert other.part is other.get_submodule("part")
    whole.part = nn.Identity()
    assert whole(x).equal(2 * x)
    whole.part = None
    assert whole.part is None


def test_hooks_are_run():
    whole, seen = Doubled(), []
    handles = [
        whole.register_forward_hook(lambda module, inputs, output: seen.append(output)),
        whole.part.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0])),
    ]
    x = torch.ones(1, 3)
    made = whole(x)
    assert [each is other for each, other in zip(seen, [x, made], strict=True)] == [True, True]
    for handle in handles:
        handle.remove()
    whole(x)
    assert len(seen) == 2
