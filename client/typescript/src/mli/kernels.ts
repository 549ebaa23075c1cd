// SPDX-License-Identifier: Apache-2.0

/**
 * The kernels of the common group, and the conversions: a function per name of embARC MLI's
 * documentation. An output that options do not name is made; inside of a batch it is filled at its end.
 */

import { ElType, RnnMode, type RnnOutActivation } from "../gen/nnpa/mli/v1/mli_pb.js";
import type { CallOptions } from "../transport.js";
import { type BuildOptions, type KernelName, type Runner, submit } from "./calls.js";
import { empty, type Tensor } from "./tensor.js";

/** Options of a kernel: build options of the library, limits of the call, and its output. */
export interface KernelOptions extends BuildOptions, CallOptions {
  /** Receives the result. Default: a tensor that is made. */
  out?: Tensor;
}

/** Options of a kernel whose output has the fractional bits that it is given. */
export interface ScaledOptions extends KernelOptions {
  /** Fractional bits of an output that is made. */
  fracBits?: number;
}

/** `mli_rnn_cell_cfg`, which is `mli_lstm_cell_cfg` too. */
export interface RnnCellCfg {
  readonly mode: RnnMode;
  readonly act: RnnOutActivation;
  /** Intermediate results. Default: a tensor that is made. */
  readonly irTsr?: Tensor;
}

/** Returns out = weights * in + bias; of an output that is made, options give `fracBits`. */
export type FullyConnected = (
  on: Runner,
  input: Tensor,
  weights: Tensor,
  bias: Tensor,
  options: ScaledOptions,
) => Promise<Tensor>;

/** Returns the outputs; `cell` and `cfg.irTsr` are written too. */
export type LstmCell = (
  on: Runner,
  input: Tensor,
  prevOut: Tensor,
  weights: Tensor,
  bias: Tensor,
  cfg: RnnCellCfg,
  cell: Tensor,
  options?: KernelOptions,
) => Promise<Tensor>;

/** Returns out = act(weights * [in, prevOut] + bias); `fracBits` defaults to those of `prevOut`. */
export type BasicRnnCell = (
  on: Runner,
  input: Tensor,
  prevOut: Tensor,
  weights: Tensor,
  bias: Tensor,
  cfg: RnnCellCfg,
  options?: ScaledOptions,
) => Promise<Tensor>;

/** Returns the function of each element; with `out` the input itself, in place. */
export type Activation = (on: Runner, input: Tensor, options?: KernelOptions) => Promise<Tensor>;

function count(tensor: Tensor): number {
  return tensor.shape.reduce((product, size) => product * size, 1);
}

/** Returns how many frames give an output each. */
function frames(input: Tensor, { mode }: RnnCellCfg): number {
  return mode === RnnMode.RNN_BATCH_TO_BATCH ? (input.shape[0] ?? 0) : 1;
}

function fixed(fracBits: number | undefined): { fracBits?: number } {
  return fracBits === undefined ? {} : { fracBits };
}

function fullyConnected(kernel: KernelName, elType: ElType): FullyConnected {
  return async (on, input, weights, bias, options) => {
    const { fracBits } = options;
    if (options.out === undefined && fracBits === undefined) {
      throw new TypeError("fracBits: undefined, expected of an output that is made");
    }
    const out = options.out ?? empty(weights.shape[0] ?? 0, elType, fixed(fracBits));
    await submit(on, { kernel, tensors: { in: input, weights, bias, out } }, options);
    return out;
  };
}

function lstmCell(kernel: KernelName, elType: ElType): LstmCell {
  return async (on, input, prevOut, weights, bias, cfg, cell, options = {}) => {
    const size = count(cell);
    const { mode, act, irTsr = empty(4 * size, elType) } = cfg;
    const { out = empty(size * frames(input, cfg), elType, fixed(prevOut.fracBits)) } = options;
    const tensors = { in: input, prev_out: prevOut, weights, bias, cell, out, "cfg.ir_tsr": irTsr };
    await submit(on, { kernel, tensors, cfg: { mode, act } }, options);
    return out;
  };
}

function basicRnnCell(kernel: KernelName, elType: ElType): BasicRnnCell {
  return async (on, input, prevOut, weights, bias, cfg, options = {}) => {
    const size = count(bias);
    const fracBits = options.fracBits ?? prevOut.fracBits;
    const { mode, act, irTsr = empty(size, elType) } = cfg;
    const out = options.out ?? empty(size * frames(input, cfg), elType, fixed(fracBits));
    const tensors = { in: input, prev_out: prevOut, weights, bias, out, "cfg.ir_tsr": irTsr };
    await submit(on, { kernel, tensors, cfg: { mode, act } }, options);
    return out;
  };
}

function activation(kernel: KernelName, elType: ElType): Activation {
  return async (on, input, options = {}) => {
    const out = options.out ?? empty(input.room, elType);
    await submit(on, { kernel, tensors: { in: input, out } }, options);
    return out;
  };
}

/** `mli_krn_fully_connected_fx8`. */
export const krnFullyConnectedFx8 = fullyConnected("krnFullyConnectedFx8", ElType.MLI_EL_FX_8);
/** `mli_krn_fully_connected_fx16`. */
export const krnFullyConnectedFx16 = fullyConnected("krnFullyConnectedFx16", ElType.MLI_EL_FX_16);
/** `mli_krn_fully_connected_fx8w16d`: 8-bit weights and bias, 16-bit data. */
export const krnFullyConnectedFx8w16d = fullyConnected(
  "krnFullyConnectedFx8w16d",
  ElType.MLI_EL_FX_16,
);
/** `mli_krn_lstm_cell_fx8`. */
export const krnLstmCellFx8 = lstmCell("krnLstmCellFx8", ElType.MLI_EL_FX_8);
/** `mli_krn_lstm_cell_fx16`. */
export const krnLstmCellFx16 = lstmCell("krnLstmCellFx16", ElType.MLI_EL_FX_16);
/** `mli_krn_lstm_cell_fx8w16d`: 8-bit weights and bias, 16-bit data. */
export const krnLstmCellFx8w16d = lstmCell("krnLstmCellFx8w16d", ElType.MLI_EL_FX_16);
/** `mli_krn_basic_rnn_cell_fx8`. */
export const krnBasicRnnCellFx8 = basicRnnCell("krnBasicRnnCellFx8", ElType.MLI_EL_FX_8);
/** `mli_krn_basic_rnn_cell_fx16`. */
export const krnBasicRnnCellFx16 = basicRnnCell("krnBasicRnnCellFx16", ElType.MLI_EL_FX_16);
/** `mli_krn_basic_rnn_cell_fx8w16d`: 8-bit weights and bias, 16-bit data. */
export const krnBasicRnnCellFx8w16d = basicRnnCell("krnBasicRnnCellFx8w16d", ElType.MLI_EL_FX_16);
/** `mli_krn_tanh_fx8`. */
export const krnTanhFx8 = activation("krnTanhFx8", ElType.MLI_EL_FX_8);
/** `mli_krn_tanh_fx16`. */
export const krnTanhFx16 = activation("krnTanhFx16", ElType.MLI_EL_FX_16);
/** `mli_krn_sigm_fx8`. */
export const krnSigmFx8 = activation("krnSigmFx8", ElType.MLI_EL_FX_8);
/** `mli_krn_sigm_fx16`. */
export const krnSigmFx16 = activation("krnSigmFx16", ElType.MLI_EL_FX_16);

/** Converts each element to the type and parameters of `dst`, and returns it: `mli_hlp_convert_tensor`. */
export async function hlpConvertTensor(
  on: Runner,
  src: Tensor,
  dst: Tensor,
  options: BuildOptions & CallOptions = {},
): Promise<Tensor> {
  await submit(on, { kernel: "hlpConvertTensor", tensors: { src, dst } }, options);
  return dst;
}
