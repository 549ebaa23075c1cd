# SPDX-License-Identifier: Apache-2.0
"""The MLI library's reference cases through client, wire and server.

The runner of the emulator's cases calls kernels of `mli_emulator`; here those calls go out through
`nnpa_client.mli`, and what comes back is put where the runner looks for it.
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
Given = list[tuple[emulator.Tensor, mli.Tensor]]


def _tensor(one: emulator.Tensor, given: Given) -> mli.Tensor:
    params: mli.FxParams | mli.SaParams | None = None
    if isinstance(one.el_params, emulator.FxParams):
        params = mli.FxParams(one.el_params.frac_bits)
    elif one.el_params is not None:
        sa = one.el_params
        params = mli.SaParams(sa.zero_point, sa.scale, sa.scale_frac_bits, sa.dim)
    shape, strides = one.shape[: emulator.MLI_MAX_RANK], one.mem_stride[: emulator.MLI_MAX_RANK]
    fields = (one.capacity, shape, one.rank, int(one.el_type), params, strides)
    made = mli.Tensor(one.data, 0, *fields)
    given.append((one, made))
    return made


def _argument(value: object, given: Given) -> object:
    match value:
        case emulator.Tensor():
            return _tensor(value, given)
        case emulator.RnnCellCfg(mode, act, ir_tsr):
            ir = None if ir_tsr is None else _tensor(ir_tsr, given)
            return mli.RnnCellCfg(mode, act, ir)
        case emulator.SubTensorCfg(offset, size, rank):
            return mli.SubTensorCfg(offset, size, rank)
        case _:
            return value


def _put_back(given: Given) -> None:
    """Fill the runner's tensors; memory that is written is the runner's own."""
    for one, made in given:
        if made.memory is not one.data and made.memory is not None:
            one.data = made.memory[made.offset :]
        one.capacity, one.shape, one.rank = made.capacity, made.shape, made.rank
        one.el_type, one.mem_stride = made.el_type, made.mem_stride
        one.el_params = None
        if isinstance(made.el_params, mli.FxParams):
            one.el_params = emulator.FxParams(made.el_params.frac_bits)
        elif made.el_params is not None:
            sa = made.el_params
            one.el_params = emulator.SaParams(sa.zero_point, sa.scale, sa.scale_frac_bits, sa.dim)


def _options(options: emulator.Options) -> mli.Options:
    names: list[Any] = [
        one.name.lower()
        for one in (options.rounding, options.debug, options.accumulator, options.conversion)
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
        """Call the client; return what the emulator would."""
        signature = inspect.signature(FUNCTIONS[self.name])
        bound = signature.bind(*args, **kwargs).arguments
        given: Given = []
        arguments = {key: _argument(value, given) for key, value in bound.items()}
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
                told = (refusal.constraint, refusal.field, refusal.value, refusal.limit)
                return emulator.Outcome(status, emulator.Refusal(status, *told))
        _put_back(given)
        result = batch.results[-1]
        ok = emulator.MliStatus.MLI_STATUS_OK
        return emulator.Outcome(ok, None, result.accumulator_overflow, tuple(result.messages))

    def _with_null(self, arguments: dict[str, Any], options: mli.Options) -> Batch:
        """A call with a NULL output, which the client's functions would make themselves."""
        tensors: dict[str, mli.Tensor | None] = {
            key.rstrip("_"): one for key, one in arguments.items() if key != "cfg"
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
