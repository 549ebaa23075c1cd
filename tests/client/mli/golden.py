# SPDX-License-Identifier: Apache-2.0
"""The MLI library's reference cases through client, wire and server.

The runner of the emulator's cases calls kernels of `mli_emulator`; here those calls go out through
`nnpa_client.mli`, and their results are put where the runner looks for them.
"""

import inspect
import warnings
from dataclasses import dataclass
from typing import Any

import mli_emulator as emulator
import pytest
from nnpa_client import mli
from nnpa_client.mli.calls import Batch, Call
from nnpa_client.mli.connection import current_transport

FUNCTIONS = {name: entry.function for name, entry in emulator.KERNELS.items()}
Pairs = list[tuple[emulator.Tensor, mli.Tensor]]


def _tensor(original: emulator.Tensor, pairs: Pairs) -> mli.Tensor:
    params: mli.FxParams | mli.SaParams | None = None
    if isinstance(original.el_params, emulator.FxParams):
        params = mli.FxParams(original.el_params.frac_bits)
    elif original.el_params is not None:
        sa = original.el_params
        params = mli.SaParams(sa.zero_point, sa.scale, sa.scale_frac_bits, sa.dim)
    shape = original.shape[: emulator.MLI_MAX_RANK]
    strides = original.mem_stride[: emulator.MLI_MAX_RANK]
    fields = (original.capacity, shape, original.rank, int(original.el_type), params, strides)
    tensor = mli.Tensor(original.data, 0, *fields)
    pairs.append((original, tensor))
    return tensor


def _argument(value: object, pairs: Pairs) -> object:
    match value:
        case emulator.Tensor():
            return _tensor(value, pairs)
        case emulator.RnnCellCfg(mode, act, ir_tsr):
            ir = None if ir_tsr is None else _tensor(ir_tsr, pairs)
            return mli.RnnCellCfg(mode, act, ir)
        case emulator.SubTensorCfg(offset, size, rank):
            return mli.SubTensorCfg(offset, size, rank)
        case _:
            return value


def _put_back(pairs: Pairs) -> None:
    """Fill the runner's tensors; memory that is written is the runner's own."""
    for original, tensor in pairs:
        if tensor.memory is not original.data and tensor.memory is not None:
            original.data = tensor.memory[tensor.offset :]
        original.capacity, original.rank = tensor.capacity, tensor.rank
        original.shape = tensor.shape
        original.el_type, original.mem_stride = tensor.el_type, tensor.mem_stride
        original.el_params = None
        if isinstance(tensor.el_params, mli.FxParams):
            original.el_params = emulator.FxParams(tensor.el_params.frac_bits)
        elif tensor.el_params is not None:
            sa = tensor.el_params
            original.el_params = emulator.SaParams(
                sa.zero_point, sa.scale, sa.scale_frac_bits, sa.dim
            )


def _options(options: emulator.Options) -> mli.Options:
    names: list[Any] = [
        option.name.lower()
        for option in (options.rounding, options.debug, options.accumulator, options.conversion)
    ]
    return mli.Options(*names)


@dataclass(frozen=True)
class Remote:
    """A kernel of the client that is called as the emulator's."""

    name: str

    @property
    def function(self) -> Any:
        """The kernel, as an entry of the emulator's table has it."""
        return self

    def __call__(self, *args: Any, options: emulator.Options | None = None, **kwargs: Any) -> Any:
        """Call the client; return the outcome in the emulator's form."""
        signature = inspect.signature(FUNCTIONS[self.name])
        bound = signature.bind(*args, **kwargs).arguments
        pairs: Pairs = []
        arguments = {key: _argument(value, pairs) for key, value in bound.items()}
        chosen = _options(options or emulator.Options())
        kernel = self.name
        if kernel.startswith(("hlp_tensor", "hlp_count")):
            return mli.find(kernel)(**arguments, options=chosen)
        batch: Batch | None = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", mli.MliWarning)
            try:
                if "out" in bound and bound["out"] is None:
                    batch = self._with_null(arguments, chosen)
                    batch.send()
                else:
                    with mli.batch(chosen) as batch:
                        mli.find(kernel)(**arguments)
            except mli.MliError as error:
                refusal = error.refusal
                status = emulator.MliStatus(error.status)
                reason = (refusal.constraint, refusal.field, refusal.value, refusal.limit)
                return emulator.Outcome(status, emulator.Refusal(status, *reason))
        _put_back(pairs)
        result = batch.results[-1]
        ok = emulator.MliStatus.MLI_STATUS_OK
        return emulator.Outcome(ok, None, result.accumulator_overflow, tuple(result.messages))

    def _with_null(self, arguments: dict[str, Any], options: mli.Options) -> Batch:
        """A call with a NULL output; the client's functions would make the output themselves."""
        tensors: dict[str, mli.Tensor | None] = {
            key.rstrip("_"): tensor for key, tensor in arguments.items() if key != "cfg"
        }
        values: dict[str, Any] = {}
        if "cfg" in arguments:
            cfg = arguments["cfg"]
            values["cfg"] = cfg and {"mode": cfg.mode, "act": cfg.act}
            tensors["cfg.ir_tsr"] = cfg and cfg.ir_tsr
        return Batch(current_transport(), options, [Call(self.name, tensors, values)])


def _find(name: str) -> Remote:
    return Remote(name.removeprefix("mli_"))


def redirect(patch: pytest.MonkeyPatch) -> None:
    """Have the runner of the reference cases call the client."""
    patch.setattr(emulator, "find", _find)
    for name in FUNCTIONS:
        patch.setattr(emulator, name, Remote(name))
