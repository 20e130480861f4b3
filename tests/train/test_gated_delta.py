"""The kernels of a hybrid target: what is bound is said, and the CPU never gets a GPU kernel."""

from __future__ import annotations

import functools
import sys
from types import ModuleType

import pytest
import torch
from dflash_train.config import Config
from dflash_train.gated_delta import bound_kernels, use_reference_on_cpu
from dflash_train.tiny import build_target
from torch import nn


def reference(x, scale=1.0):
    """What every device can run."""
    return x * scale


def gpu_only(x, scale=1.0, chunk=64):
    """As flash-linear-attention behaves: no tensor of the CPU."""
    if x.device.type == "cpu":
        raise ValueError("Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)")
    return x * scale


def bind(implementation):
    """As transformers wraps a function whose package can be imported."""

    @functools.wraps(reference)
    def wrapped(*args, **kwargs):
        return implementation(*args, **kwargs)

    return wrapped


@pytest.fixture
def family(monkeypatch):
    """A module that defines a DeltaNet layer and binds one function to a GPU package."""
    module = ModuleType("some_family")
    module.torch_chunk_gated_delta_rule = bind(gpu_only)
    module.causal_conv1d_fn = reference
    monkeypatch.setitem(sys.modules, "some_family", module)

    class SomeDeltaNet(nn.Module):
        def forward(self, x):
            return module.torch_chunk_gated_delta_rule(x, scale=2.0, chunk=32)

    SomeDeltaNet.__module__ = "some_family"
    return module, SomeDeltaNet()


def test_a_tensor_on_the_cpu_takes_the_reference_although_a_gpu_kernel_is_bound(family):
    _module, layer = family
    with pytest.raises(ValueError, match="cpu tensor"):
        layer(torch.ones(2))
    use_reference_on_cpu(layer)
    assert layer(torch.ones(2)).tolist() == [2.0, 2.0]


def test_a_tensor_elsewhere_keeps_the_gpu_kernel(family):
    module, layer = family
    use_reference_on_cpu(layer)
    assert layer(torch.ones(2, device="meta")).device.type == "meta"
    assert bound_kernels(layer)["torch_chunk_gated_delta_rule"] == gpu_only.__module__
    once = module.torch_chunk_gated_delta_rule
    use_reference_on_cpu(layer)
    assert module.torch_chunk_gated_delta_rule is once


def test_what_each_kernel_is_bound_to_is_said():
    assert set(bound_kernels(build_target(Config()))) == {
        "causal_conv1d_fn",
        "torch_chunk_gated_delta_rule",
        "torch_recurrent_gated_delta_rule",
    }
    assert bound_kernels(nn.Linear(2, 2)) == {}
