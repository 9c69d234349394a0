"""From logits to tokens and confidences."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from redline_engine.config import Sampling  # noqa: E402
from redline_engine.models.propose import propose  # noqa: E402

MASK = 0
NO_DRAWS = torch.zeros(0, dtype=torch.float64)


def greedy(*rows):
    return propose(torch.tensor(rows), MASK, None, NO_DRAWS)


def test_the_mask_is_neither_proposed_nor_part_of_the_probability():
    said = greedy([9.0, 1.0, 1.0, 2.0])
    assert said.tokens.tolist() == [3]
    assert said.confidence.item() == pytest.approx(torch.tensor([1.0, 1.0, 2.0]).softmax(0)[2].item(), abs=1e-6)


def test_tied_tokens_go_to_the_lowest_id():
    assert greedy([0.0, 1.0, 5.0, 5.0, 5.0], [3.0, 3.0, 3.0, 3.0, 3.0]).tokens.tolist() == [2, 1]


@pytest.mark.parametrize("size", [33, 352, 5000])
def test_the_first_of_equals_is_the_lowest_id_wherever_they_stand(size):
    generator = torch.Generator().manual_seed(2)
    logits = torch.randint(0, 4, (300, size), generator=generator).float()
    said = propose(logits.clone(), MASK, None, NO_DRAWS)
    expected = [row.index(max(row[1:]), 1) for row in logits.tolist()]
    assert said.tokens.tolist() == expected


@pytest.mark.parametrize("size", [352, 50_000])
@pytest.mark.parametrize("spread", [0.1, 3.0, 8.0])
@pytest.mark.parametrize("sampling", [None, Sampling(2.0, 1.0, 0, 0)], ids=["greedy", "drawn"])
def test_confidence_is_as_exact_as_a_softmax(size, spread, sampling):
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(40, size, generator=generator) * spread
    said = propose(logits.clone(), MASK, sampling, torch.rand(40, dtype=torch.float64, generator=generator))
    logits[:, MASK] = -torch.inf
    exact, softmax = (each.softmax(dim=1).gather(1, said.tokens[:, None])[:, 0] for each in (logits.double(), logits))
    error, other = (((each - exact) / exact).abs().mean().item() for each in (said.confidence, softmax))
    assert error < 1.2 * other + 5e-8  # one rounding
    assert error < 2e-6


def test_greedy_proposals_take_no_memory_beside_the_logits():
    """No operation makes a matrix of the logits' size that is not the logits themselves."""

    class Watch(TorchDispatchMode):
        largest = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            made = function(*args, **kwargs or {})
            for each in made if isinstance(made, tuple) else (made,):
                if each.untyped_storage().data_ptr() != logits.untyped_storage().data_ptr():
                    self.largest = max(self.largest, each.numel())
            return made

    logits = torch.randn(30, 500)
    with Watch() as watch:
        propose(logits, MASK, None, NO_DRAWS)
    assert watch.largest == 30


def test_confidence_is_float32_whatever_the_logits():
    logits = torch.tensor([[0.0, 3.0, 1.0, 1.0]], dtype=torch.bfloat16)
    said = propose(logits, MASK, None, NO_DRAWS)
    assert said.confidence.dtype == torch.float32
    assert said.confidence.item() == pytest.approx(logits[0, 1:].double().softmax(0)[0].item(), abs=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_not_finite_are_reported(bad):
    confidence = greedy([0.0, 1.0, 2.0], [0.0, bad, 2.0], [bad, 1.0, 2.0]).confidence
    assert confidence.isnan().tolist() == [False, True, True]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_bad_logits_spoil_no_other_draw(bad):
    logits = torch.tensor([[0.0, 1.0, 2.0, 0.5], [0.0, bad, 2.0, 0.5], [0.0, 1.0, 2.0, 0.5]])
    numbers = torch.full((3,), 0.4, dtype=torch.float64)
    said = propose(logits, MASK, Sampling(1.0, 0.9, 2, 0), numbers)
    assert said.confidence.isnan().tolist() == [False, True, False]
    assert said.tokens[0] == said.tokens[2]
    assert ((said.tokens >= 0) & (said.tokens < 4)).all()


def test_the_smallest_temperature_is_nearly_greedy():
    assert draw([0.1, 0.2, 0.4, 0.3], [0.0, 0.5, 0.999], temperature=1e-310).tokens.tolist() == [2, 2, 2]


def draw(logits, uniforms, **knobs):
    sampling = Sampling(**({"temperature": 1.0, "top_p": 1.0, "top_k": 0, "seed": 0} | knobs))
    numbers = torch.tensor(uniforms, dtype=torch.float64)
    return propose(torch.tensor(logits).log()[None].repeat(len(uniforms), 1), MASK, sampling, numbers)


PROBABILITIES = [1e-9, 0.2, 0.5, 0.3]  # of tokens 0 (the mask) to 3; in order of probability 2, 3, 1


def test_a_draw_inverts_the_distribution_in_order_of_probability():
    said = draw(PROBABILITIES, [0.0, 0.49, 0.51, 0.79, 0.81, 0.999999])
    assert said.tokens.tolist() == [2, 2, 3, 3, 1, 1]


def test_top_k_and_top_p_restrict_the_draw():
    assert draw(PROBABILITIES, [0.0, 0.62, 0.63, 0.999999], top_k=2).tokens.tolist() == [2, 2, 3, 3]
    assert draw(PROBABILITIES, [0.62, 0.63, 0.999999], top_p=0.7).tokens.tolist() == [2, 3, 3]
    assert draw(PROBABILITIES, [0.999999], top_p=0.5).tokens.tolist() == [2]
    assert draw(PROBABILITIES, [0.999999], top_k=99).tokens.tolist() == [1]


def test_temperature_sharpens_the_draw_only():
    said = draw(PROBABILITIES, [0.5, 0.999999], temperature=0.1)
    assert said.tokens.tolist() == [2, 1]
    assert said.confidence.tolist() == pytest.approx([0.5, 0.2], abs=1e-6)


def test_confidence_is_the_same_before_and_after_filters():
    """With top-k 1 a draw is the greedy choice, at the greedy confidence."""
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(50, 30, generator=generator) * 3
    plain = propose(logits.clone(), MASK, None, NO_DRAWS)
    uniforms = torch.rand(50, dtype=torch.float64, generator=generator)
    drawn = propose(logits, MASK, Sampling(0.7, 0.9, 1, 0), uniforms)
    assert drawn.tokens.equal(plain.tokens)
    assert drawn.confidence.equal(plain.confidence)


def test_draws_follow_the_distribution():
    uniforms = ((torch.arange(10_000) + 0.5) / 10_000).tolist()
    counts = torch.bincount(draw(PROBABILITIES, uniforms).tokens, minlength=4)
    assert counts.tolist() == pytest.approx([0, 2000, 5000, 3000], abs=2)
