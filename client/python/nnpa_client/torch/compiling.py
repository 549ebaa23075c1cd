# SPDX-License-Identifier: Apache-2.0
"""The backend of torch.compile: graphs of Dynamo run as modules on an emulated machine."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from nnpa_client.connection import connect
from nnpa_client.session import Session
from nnpa_client.torch.emulation import Emulated, emulate

torch: Any = import_module("torch")
_STATE = "_dynamo_static_input_type"  # of a placeholder that is a parameter or a buffer
_READ = ("call_method", "item")
_OPTIONS = ("machine", "placement", "strict")


def backend(
    graph: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compile a graph for `torch.compile(model, backend="nnpa", options={"machine": "z16"})`.

    `options` are `machine`, `placement` and `strict` of `emulate`. All graphs of a process on one
    machine share a private server. A backward pass raises RuntimeError: the machine runs forward
    only.
    """
    chosen = dict(options or {})
    if unknown := sorted(set(chosen) - set(_OPTIONS)):
        raise ValueError(f"options: {unknown[0]!r}, expected one of {', '.join(_OPTIONS)}")
    placeholders = graph.graph.find_nodes(op="placeholder")
    is_state = [
        isinstance(example, torch.nn.Parameter) or _STATE in (node.meta.get("tensor_dict") or {})
        for node, example in zip(placeholders, example_inputs, strict=True)
    ]
    is_number = _unwrap_numbers(placeholders)
    bound: list[tuple[list[Any], Emulated]] = []

    def run(*args: Any) -> Any:
        state = [arg for arg, held in zip(args, is_state, strict=True) if held]
        if not bound or any(now is not then for now, then in zip(state, bound[0][0], strict=True)):
            for _state, emulated in bound:
                emulated.close()
            bound[:] = [(state, _emulated(_module(graph, is_state, state), chosen))]
        inputs = [
            arg.item() if number else arg
            for arg, held, number in zip(args, is_state, is_number, strict=True)
            if not held
        ]
        outputs = bound[0][1](*inputs)
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return tuple(map(_without_backward, outputs))
        return outputs

    return run


def _unwrap_numbers(placeholders: Sequence[Any]) -> list[bool]:
    """Make a graph take numbers that Dynamo wraps in tensors as numbers; return which inputs are.

    With dynamic shapes Dynamo makes each float of a module, such as an eps, an input of the graph,
    so that another value needs no new graph. Here each form has its own shapes and numbers.
    """
    is_number = [
        bool(node.users) and all((user.op, user.target) == _READ for user in node.users)
        for node in placeholders
    ]
    for node, number in zip(placeholders, is_number, strict=True):
        for user in list(node.users) if number else ():
            user.replace_all_uses_with(node)
            user.graph.erase_node(user)
    if any(is_number):
        placeholders[0].graph.owning_module.recompile()
    return is_number


def _emulated(module: Any, chosen: Mapping[str, Any]) -> Emulated:
    if chosen.get("placement") == "every":
        return emulate(module, **chosen)
    return emulate(module, **chosen, target=_session(chosen.get("machine", "z17")))


@cache
def _session(machine: str) -> Session:
    """Return the session that all graphs of this process share."""
    return connect(machine=machine)


def _module(graph: Any, is_state: Sequence[bool], state: Sequence[Any]) -> Any:
    """Return a graph as a module that holds its parameters and buffers."""
    module = torch.nn.Module()
    for place, tensor in enumerate(state):
        module.register_buffer(f"state_{place}", tensor)

    def forward(*inputs: Any) -> Any:
        tensors = (getattr(module, f"state_{place}") for place in range(len(state)))
        arguments = iter(inputs)
        return graph(*(next(tensors) if held else next(arguments) for held in is_state))

    module.forward = forward
    return module.eval()


def _without_backward(output: Any) -> Any:
    """Return an output that requires a gradient as in eager mode, and refuses a backward pass."""
    if not isinstance(output, torch.Tensor) or not output.is_floating_point():
        return output
    leaf = output.detach().requires_grad_()
    leaf.register_hook(_refuse_backward)
    return leaf.view_as(leaf)


def _refuse_backward(_gradient: Any) -> None:
    raise RuntimeError("backward: the nnpa backend runs models forward only, expected inference")
