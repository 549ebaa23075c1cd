// SPDX-License-Identifier: Apache-2.0

/**
 * embARC MLI's fixed-point kernels, bit for bit, with MLI's names in camelCase.
 *
 *     const x = mli.quantise([-4, -1, 0, 1, 4], { elType: mli.ElType.MLI_EL_FX_8 });
 *     const y = await mli.krnTanhFx8(session, x);
 *     console.log(y.array, y.fracBits, mli.dequantise(y));
 *
 * A kernel takes first where it runs, a session or a batch, then MLI's tensors in C's order; outputs
 * are made, unless options name them.
 */

export {
  ElType,
  MliStatus,
  RnnMode,
  RnnOutActivation,
} from "./gen/nnpa/mli/v1/mli_pb.js";
export {
  Batch,
  batch,
  type BuildOptions,
  type KernelOptions,
  type RnnCellCfg,
  type Runner,
  type ScaledOptions,
} from "./mli/calls.js";
export * from "./mli/kernels.gen.js";
export { dequantise, quantise, type QuantiseOptions } from "./mli/quantisation.js";
export { empty, type Elements, type SaParams, Tensor, tensor, type TensorOptions } from "./mli/tensor.js";
