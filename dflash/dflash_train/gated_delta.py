"""Which Gated DeltaNet kernels a target runs, and the reference where they cannot run.

transformers binds flash-linear-attention and causal-conv1d when they can be imported, whatever the
device; both refuse tensors on the CPU. Here the device of the call decides.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType

import torch
from torch import Tensor, nn

REFERENCE = "reference"
GATED_DELTA_FUNCTIONS = (
    "causal_conv1d_fn",
    "torch_chunk_gated_delta_rule",
    "torch_recurrent_gated_delta_rule",
)


def bound_kernels(model: nn.Module) -> dict[str, str]:
    """Which implementation each Gated DeltaNet function runs on a GPU.

    Returns:
        Function name to `package.module` of what is bound, or `reference`; empty for a target
        without linear-attention layers.
    """
    module = _gated_delta_module(model)
    if module is None:
        return {}
    functions = {name: getattr(module, name, None) for name in GATED_DELTA_FUNCTIONS}
    return {name: _origin(fn, module) for name, fn in functions.items() if fn is not None}


def bound_on(model: nn.Module, device_type: str) -> dict[str, str]:
    """As `bound_kernels`, for tensors of that device: the CPU always gets the reference."""
    bound = bound_kernels(model)
    return bound if device_type == "cuda" else dict.fromkeys(bound, REFERENCE)


@contextmanager
def each_call(
    model: nn.Module, around: Callable[[str], AbstractContextManager[None]]
) -> Iterator[None]:
    """While it lasts, every call of a Gated DeltaNet function runs inside `around(its name)`.

    What is really called is seen, not what could be imported. For one thread at a time, as all that
    changes a module.
    """
    module = _gated_delta_module(model)
    functions = {name: getattr(module, name) for name in bound_kernels(model)}

    def wrap(name: str, function: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(function)
        def call(*args: object, **kwargs: object) -> object:
            with around(name):
                return function(*args, **kwargs)

        return call

    try:
        for name, function in functions.items():
            setattr(module, name, wrap(name, function))
        yield
    finally:
        for name, function in functions.items():
            setattr(module, name, function)


def use_reference_on_cpu(model: nn.Module) -> None:
    """Make the reference run where tensors lie on the CPU; GPU calls keep the fast kernel.

    Changes the module that defines the model, once, for all models of that family: transformers
    looks the functions up there at each call.
    """
    module = _gated_delta_module(model)
    if module is None:
        return
    for name in GATED_DELTA_FUNCTIONS:
        function = getattr(module, name, None)
        if function is not None and _origin(function, module) != REFERENCE:
            setattr(module, name, _by_device(function))


def _gated_delta_module(model: nn.Module) -> ModuleType | None:
    layers = (module for module in model.modules() if type(module).__name__.endswith("DeltaNet"))
    first = next(layers, None)
    return None if first is None else inspect.getmodule(type(first))


def _by_device(function: Callable[..., object]) -> Callable[..., object]:
    if getattr(function, "chooses_by_device", False):
        return function
    reference = inspect.unwrap(function)
    known = frozenset(inspect.signature(reference).parameters)

    @functools.wraps(function)
    def choose(*args: object, **kwargs: object) -> object:
        tensors = (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
        first = next(tensors, None)
        if first is None or first.device != torch.device("cpu"):
            return function(*args, **kwargs)
        return reference(*args, **{key: value for key, value in kwargs.items() if key in known})

    choose.chooses_by_device = True  # type: ignore[attr-defined]  # a mark on a function object
    return choose


def _origin(function: Callable[..., object], module: ModuleType) -> str:
    """Package that the innermost transformers wrapper bound."""
    layer: Callable[..., object] | None = function
    while layer is not None:
        implementation = inspect.getclosurevars(layer).nonlocals.get("implementation")
        if implementation is not None:
            origin = str(getattr(implementation, "__module__", None) or REFERENCE)
            return REFERENCE if origin == module.__name__ else origin
        layer = getattr(layer, "__wrapped__", None)
    return REFERENCE
