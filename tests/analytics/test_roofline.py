"""The roofline against worked figures: a 7B model on an H100, and names as exporters and engines give them."""

from __future__ import annotations

import pytest

from analytics import roofline


def test_worked_example_of_a_7b_model_on_an_h100() -> None:
    card, model = roofline.gpu("NVIDIA H100"), roofline.size("Some-7B")
    assert card is not None
    assert model is not None
    assert model.weight_bytes == 14e9
    assert card.ridge == pytest.approx(295, abs=1)
    assert 2 * model.parameters * 2_048 == pytest.approx(2.87e13, rel=0.01)
    assert roofline.binds(card, model, 1) == "memory"
    assert roofline.binds(card, model, 2_048) == "compute"
    assert roofline.decode_s(card, model) == pytest.approx(14e9 / 3.35e12)
    assert roofline.prefill_s(card, model, 2_048) == pytest.approx(2.87e13 / 989e12, rel=0.01)


def test_four_bits_help_decode_and_not_prefill() -> None:
    full, small = (
        roofline.floor_rates_ms("NVIDIA A10", "Llama-3-8B"),
        roofline.floor_rates_ms("NVIDIA A10", "Llama-3-8B-AWQ"),
    )
    assert full is not None
    assert small is not None
    assert small[0] == full[0]
    assert small[1] < 0.3 * full[1]


@pytest.mark.parametrize(
    ("name", "parameters", "stored"),
    [
        ("Llama-3-70B-AWQ", 70e9, 0.56),
        ("TinyLlama-1.1B", 1.1e9, 2.0),
        ("Phi-3-mini-3.8B", 3.8e9, 2.0),
        ("SmolLM2-135M-Instruct", 135e6, 2.0),
        ("qwen2.5_72b_fp8", 72e9, 1.0),
    ],
)
def test_sizes_are_read_from_names(name: str, parameters: float, stored: float) -> None:
    assert roofline.size(name) == roofline.Size(parameters, stored)


@pytest.mark.parametrize("name", ["gpt-4o", "claude", "", "bert-base"])
def test_a_name_without_a_size_gives_none(name: str) -> None:
    assert roofline.size(name) is None


def test_cards_are_told_apart() -> None:
    one, two = roofline.gpu("NVIDIA A100-SXM4-80GB"), roofline.gpu("2x NVIDIA A100-SXM4-80GB")
    assert one is not None
    assert two is not None
    assert two.flops_per_s == 2 * one.flops_per_s
    l4, l40s, t4 = roofline.gpu("NVIDIA L4"), roofline.gpu("NVIDIA L40S"), roofline.gpu("Tesla T4")
    assert l4 is not None
    assert l40s is not None
    assert t4 is not None
    assert t4.bytes_per_s < l4.bytes_per_s * 1.1 < l40s.bytes_per_s
    assert roofline.gpu("Some other card") is None
    assert roofline.floor_rates_ms("", "Llama-3-8B") is None
