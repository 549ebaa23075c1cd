# SPDX-License-Identifier: Apache-2.0
"""Modules of PyTorch, run forward with DLFLOAT16; takes the extra `torch`.

    emulated = nnpa_client.torch.emulate(model)      # a torch.nn.Module, or an ExportedProgram
    y = emulated(x)
    print(emulated.report(x))                        # a row for each layer

`torch.compile(model, backend="nnpa")` uses the same without an import of this module.
"""

from importlib import import_module

from nnpa_wire.installation import pip_install

try:
    import_module("torch")
    import_module("onnxscript")
except ModuleNotFoundError as error:
    text = f"nnpa_client.torch needs {error.name}: {pip_install('torch')}"
    raise ModuleNotFoundError(text, name=error.name) from error

from nnpa_client.torch.compiling import backend
from nnpa_client.torch.emulation import Emulated, emulate
from nnpa_client.torch.layers import Layer, Report

__all__ = ["Emulated", "Layer", "Report", "backend", "emulate"]
