# SPDX-License-Identifier: Apache-2.0
"""A module that runs forward on an emulated machine."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, Protocol, Self

from nnpa_client.connection import connect
from nnpa_client.session import Session
from nnpa_client.torch.exporting import (
    export,
    flat_inputs,
    require_eval,
    require_inference,
    require_shapes,
    to_onnx,
)
from nnpa_client.torch.hosted import Hosted
from nnpa_client.torch.layers import Layer, Report
from nnpa_client.torch.rounded import Rounded
from nnpa_client.torch.split import Split

torch: Any = import_module("torch")
pytree: Any = import_module("torch.utils._pytree")
Placement = Literal["compiler", "every"]
_PLACEMENTS = ("compiler", "every")
_MAX_FORMS = 8


class Form(Protocol):
    """A program that is ready to run."""

    def run(self, leaves: Sequence[Any]) -> Any:
        """Return the outputs for flat inputs, as the program nests them."""
        ...

    def measure(self, leaves: Sequence[Any]) -> tuple[Any, list[Layer]]:
        """Return the outputs as `run` does, and the layers beside FP32."""
        ...

    def close(self) -> None:
        """Release the form's network."""
        ...


class Emulated:
    """A module, called as the module is; its outputs have no gradient.

    It is compiled at the first call with inputs of new shapes, or after parameters changed; the
    last eight forms are kept. Use one thread at a time. `close`, or the end of a `with` block,
    ends the private server.
    """

    def __init__(
        self,
        model: Any,
        placement: Placement,
        session: Session | None,
        strict: bool = False,
        owns_session: bool = False,
    ) -> None:
        self._model, self._placement, self._strict = model, placement, strict
        self._session, self._owns_session = session, owns_session
        self._is_program = isinstance(model, torch.export.ExportedProgram)
        self._forms: dict[object, tuple[Any, Form, object]] = {}
        if self._is_program:
            require_inference(model)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's outputs for its inputs, in the module's own structure."""
        with torch.no_grad():
            form, leaves = self._form(args, kwargs)
            return form.run(leaves)

    def report(self, *args: Any, **kwargs: Any) -> Report:
        """Run over inputs beside FP32, and return what DLFLOAT16 does to each layer."""
        with torch.no_grad():
            form, leaves = self._form(args, kwargs)
            _outputs, layers = form.measure(leaves)
        machine = "any machine" if self._session is None else self._session.machine.name
        return Report(machine.removeprefix("machines/"), self._placement, tuple(layers))

    def _form(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Form, list[Any]]:
        """Return the form for inputs, and the inputs one after the other."""
        state: tuple[Any, ...] = ()
        key: object = None
        if self._is_program:
            leaves = flat_inputs(self._model, args, kwargs)
        else:
            require_eval(self._model)
            leaves, nesting = pytree.tree_flatten((tuple(args), dict(kwargs)))
            state = (*self._model.parameters(), *self._model.buffers())
            versions = tuple((id(tensor), tensor._version) for tensor in state)
            key = (str(nesting), tuple(map(_kind, leaves)), versions)
        if key not in self._forms:
            program = self._model if self._is_program else export(self._model, args, kwargs)
            self._keep(key, program, state)
        program, form, _state = self._forms[key]
        require_shapes(program, leaves)
        return form, leaves

    def _keep(self, key: object, program: Any, state: object) -> None:
        """Compile a program, and keep its state with it, so that no id is reused meanwhile."""
        form = self._compiled(program)
        while len(self._forms) >= _MAX_FORMS:
            self._forms.pop(next(iter(self._forms)))[1].close()
        self._forms[key] = program, form, state

    def _compiled(self, program: Any) -> Form:
        if self._session is None:
            return Rounded(program)
        try:
            model = to_onnx(program)
        except torch.onnx.OnnxExporterError:
            return Split(program, self._session, self._strict)
        return Hosted(program, model, self._session, self._strict)

    def close(self) -> None:
        """Destroy the hosted networks, and end the private server. May be repeated."""
        for _program, form, _state in self._forms.values():
            form.close()
        self._forms.clear()
        if self._owns_session and self._session is not None:
            self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        kind = type(self._model).__name__
        where = "any machine" if self._session is None else repr(self._session)
        return f"<Emulated {kind}, placement {self._placement}, {where}>"


def emulate(
    model: Any,
    machine: str = "z17",
    placement: Placement = "compiler",
    *,
    strict: bool = False,
    target: str | Session | None = None,
) -> Emulated:
    """Return a module, or a torch.export.ExportedProgram, that runs forward with DLFLOAT16.

        emulated = emulate(model.eval(), "z16")
        y = emulated(x)

    With `placement` "compiler" the nodes that the compiler for the machine places run on the
    accelerator, all others in FP32: the bits of `session.load` of the module's ONNX file. Operators
    that ONNX lacks run in torch. With "every" each operation of core ATen is rounded, with the same
    result on every machine. `strict` refuses a module with an operation that falls back. `target`
    is a server's address, or a session, which then decides the machine; by default a private server
    is started. A call raises ValueError for training mode, for control flow that depends on values
    and for shapes that an exported program does not take, TypeError for types other than float32,
    `TransportError` for a refusal of the server.
    """
    if not isinstance(model, torch.nn.Module | torch.export.ExportedProgram):
        expected = "a torch.nn.Module or torch.export.ExportedProgram"
        raise TypeError(f"model: {type(model).__name__}, expected {expected}")
    if placement not in _PLACEMENTS:
        raise ValueError(f"placement: {placement!r}, expected one of {', '.join(_PLACEMENTS)}")
    if placement == "every":
        return Emulated(model, placement, None, strict)
    session = target if isinstance(target, Session) else connect(target, machine)
    return Emulated(model, placement, session, strict, owns_session=session is not target)


def _kind(leaf: Any) -> object:
    """Return the facts about an input that a form depends on: of a tensor its shape and type."""
    return (tuple(leaf.shape), leaf.dtype) if isinstance(leaf, torch.Tensor) else repr(leaf)
