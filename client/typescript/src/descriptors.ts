// SPDX-License-Identifier: Apache-2.0

/**
 * Local functions of zDNN: descriptors, sizes, limits. They need no server.
 *
 * Descriptors are `zdnn_tensor_desc` as the wire carries it: fields layout, format, type, dim4 to
 * dim1, which a program may read and write as in C.
 */

import { create } from "@bufbuild/protobuf";

import {
  PREV_LAYER_BIDIR,
  RNN_TYPE_GRU,
  RNN_TYPE_LSTM,
  USAGE_BIASES,
  USAGE_HIDDEN_BIASES,
  USAGE_HIDDEN_WEIGHTS,
  USAGE_WEIGHTS,
} from "./constants.gen.js";
import { CONCAT_PREV_LAYER, CONCAT_RNN_TYPE, CONCAT_USAGE } from "./macros.js";
import { shownDesc } from "./display.js";
import { AXES, rank } from "./elements.js";
import { ZdnnError } from "./errors.js";
import { RefusalSchema, ZdnnStatus } from "./gen/nnpa/zdnn/v1/status_pb.js";
import {
  DataFormats,
  DataLayouts,
  DataTypes,
  QuantizedTransformTypes,
  type TensorDesc,
  TensorDescSchema,
} from "./gen/nnpa/zdnn/v1/tensor_pb.js";

const { FP32, FP16, BFLOAT, INT8, INT32 } = DataTypes;
const { ZDNN_BINARY_INT8, ZDNN_BINARY_INT32, ZDNN_DLFLOAT16 } = DataTypes;
const { ZDNN_FORMAT_4DFEATURE, ZDNN_FORMAT_4DKERNEL, ZDNN_FORMAT_4DWEIGHTS } = DataFormats;
const { ZDNN_2DS, ZDNN_3DS, ZDNN_4DS, ZDNN_HWCK, ZDNN_NCHW, ZDNN_NHWC } = DataLayouts;
const { ZDNN_INVALID_CONCAT_INFO, ZDNN_INVALID_LAYOUT, ZDNN_INVALID_TYPE } = ZdnnStatus;

const UINT32_MAX = 0xffffffff;
const FLOATS: readonly number[] = [FP32, FP16, BFLOAT];
/** Cells of 16 bits in a stick of 128 bytes. */
const STICK_CELLS = 64;
const STICK_ROWS = 32n;
const PAGE_BYTES = 4096n;

/** Layouts that cannot be quantized. */
const UNQUANTIZED: readonly unknown[] = [ZDNN_4DS, ZDNN_NCHW, ZDNN_HWCK];
/** Layouts of LSTM's and GRU's gates, by the direction of the layer before. */
const UNIDIRECTIONAL = [DataLayouts.ZDNN_FICO, DataLayouts.ZDNN_ZRH] as const;
const BIDIRECTIONAL = [DataLayouts.ZDNN_BIDIR_FICO, DataLayouts.ZDNN_BIDIR_ZRH] as const;
const QUANTIZED = new Map<number, readonly [DataFormats, DataTypes]>([
  [QuantizedTransformTypes.QUANTIZED_DLFLOAT16, [ZDNN_FORMAT_4DFEATURE, ZDNN_DLFLOAT16]],
  [QuantizedTransformTypes.QUANTIZED_INT8, [ZDNN_FORMAT_4DFEATURE, ZDNN_BINARY_INT8]],
  [QuantizedTransformTypes.QUANTIZED_WEIGHTS_INT8, [ZDNN_FORMAT_4DWEIGHTS, ZDNN_BINARY_INT8]],
]);

/** Returns the product as a uint32_t. */
function times(a: number, b: number): number {
  return Math.imul(a, b) >>> 0;
}

/** Returns the size rounded up to whole sticks, as a uint32_t. */
function padded(size: number): number {
  return (Math.ceil(size / STICK_CELLS) * STICK_CELLS) >>> 0;
}

function refuse(
  status: ZdnnStatus,
  op: string,
  field: string,
  value: string | number | undefined,
  limit: string,
  number: number,
): never {
  const constraint = `${op}_c${number}`;
  const refusal = create(RefusalSchema, { field, value: String(value ?? 0), limit, constraint });
  throw new ZdnnError(status, op, { refusal });
}

function setDims(desc: TensorDesc, sizes: readonly number[]): void {
  [desc.dim4 = 0, desc.dim3 = 0, desc.dim2 = 0, desc.dim1 = 0] = sizes;
}

/** Returns the transformed dims; undefined for a layout that has no transformed form. */
function placed({ layout, dim4, dim3, dim2, dim1 }: TensorDesc): readonly number[] | undefined {
  const width = layout === ZDNN_4DS && dim3 !== 1 ? times(dim3, padded(dim1)) : dim1;
  const sizes = [1, width, dim2, dim3, dim4];
  return AXES.get(layout ?? -1)?.map((axis) => sizes[axis] ?? 0);
}

/**
 * Describes the user's tensor: `sizes` in elements, outermost first, one for each dim of `layout`.
 *
 * Neither layout nor type is checked here, as in C; a concatenated or unknown layout takes no
 * sizes. Throws TypeError for another count of sizes, RangeError for a size that a uint32_t cannot
 * hold.
 * Source: zDNN API Reference 1.2.0, zdnn_init_pre_transformed_desc.
 */
export function initPreTransformedDesc(
  layout: number,
  type: number,
  ...sizes: readonly number[]
): TensorDesc {
  const dimCount = rank(layout);
  if (dimCount && sizes.length !== dimCount) {
    const name = DataLayouts[layout] ?? layout;
    const text = `sizes: ${sizes.join(", ")}, layout ${name} has ${dimCount}, not ${sizes.length}`;
    throw new TypeError(text);
  }
  const all = [0, 0, 0, 0];
  for (const [index, size] of sizes.slice(0, dimCount).entries()) {
    if (!Number.isInteger(size) || size < 0 || size > UINT32_MAX) {
      throw new RangeError(`dim${dimCount - index}: ${size}, expected 0 to ${UINT32_MAX}`);
    }
    all[4 - dimCount + index] = size;
  }
  const desc = create(TensorDescSchema, { layout: layout | 0, type: type | 0 });
  setDims(desc, all);
  return shownDesc(desc);
}

/**
 * Describes the sticks of a tensor; fills and returns `tfrmdDesc`, or a new descriptor.
 *
 * Throws ZdnnError: ZDNN_INVALID_LAYOUT for a layout that has no transformed form; ZDNN_INVALID_TYPE
 * for a type other than FP32, FP16, BFLOAT, INT32, after all but the type has been written.
 * Source: zDNN API Reference 1.2.0, zdnn_generate_transformed_desc.
 */
export function generateTransformedDesc(
  preTfrmdDesc: TensorDesc,
  tfrmdDesc: TensorDesc = create(TensorDescSchema),
): TensorDesc {
  const op = "generate_transformed_desc";
  const { layout, type } = preTfrmdDesc;
  const sizes = placed(preTfrmdDesc);
  if (sizes === undefined) {
    return refuse(ZDNN_INVALID_LAYOUT, op, "pre_tfrmd_desc.layout", layout, "a plain one", 1);
  }
  const kernel = layout === ZDNN_HWCK;
  tfrmdDesc.layout = kernel ? ZDNN_HWCK : ZDNN_NHWC;
  tfrmdDesc.format = kernel ? ZDNN_FORMAT_4DKERNEL : ZDNN_FORMAT_4DFEATURE;
  setDims(tfrmdDesc, sizes);
  if (![...FLOATS, INT32].includes(type ?? -1)) {
    const limit = "FP32, FP16, BFLOAT or INT32";
    return refuse(ZDNN_INVALID_TYPE, op, "pre_tfrmd_desc.type", type, limit, 2);
  }
  tfrmdDesc.type = type === INT32 ? ZDNN_BINARY_INT32 : ZDNN_DLFLOAT16;
  return shownDesc(tfrmdDesc);
}

/**
 * Describes the sticks of a quantized tensor; `transformType` is one of QUANTIZED_*.
 *
 * Throws ZdnnError, in this order: ZDNN_INVALID_LAYOUT, ZDNN_INVALID_TYPE,
 * ZDNN_INVALID_TRANSFORM_TYPE. Layout 4DS, NCHW, HWCK and concatenated ones are not allowed.
 * Source: zDNN API Reference 1.2.0, zdnn_generate_quantized_transformed_desc.
 */
export function generateQuantizedTransformedDesc(
  preTfrmdDesc: TensorDesc,
  transformType: number,
  tfrmdDesc: TensorDesc = create(TensorDescSchema),
): TensorDesc {
  const op = "generate_quantized_transformed_desc";
  const { layout, type } = preTfrmdDesc;
  const sizes = placed(preTfrmdDesc);
  if (sizes === undefined || UNQUANTIZED.includes(layout)) {
    const limit = "1D, 2D, 2DS, 3D, 3DS, 4D or NHWC";
    return refuse(ZDNN_INVALID_LAYOUT, op, "pre_tfrmd_desc.layout", layout, limit, 1);
  }
  if (![...FLOATS, INT8].includes(type ?? -1)) {
    const limit = "FP32, FP16, BFLOAT or INT8";
    return refuse(ZDNN_INVALID_TYPE, op, "pre_tfrmd_desc.type", type, limit, 2);
  }
  const chosen = QUANTIZED.get(transformType);
  if (chosen === undefined) {
    const status = ZdnnStatus.ZDNN_INVALID_TRANSFORM_TYPE;
    return refuse(status, op, "transform_type", transformType, "0, 1 or 2", 3);
  }
  tfrmdDesc.layout = ZDNN_NHWC;
  [tfrmdDesc.format, tfrmdDesc.type] = chosen;
  setDims(tfrmdDesc, sizes);
  return shownDesc(tfrmdDesc);
}

/**
 * Describes the sticks of weights or biases of a recurrent layer, gates side by side in dim1.
 *
 * `info` is the sum of one RNN_TYPE_*, one PREV_LAYER_* and one USAGE_*. Throws ZdnnError, in this
 * order: ZDNN_INVALID_TYPE; ZDNN_INVALID_SHAPE (odd dim2 of weights behind a bidirectional layer);
 * ZDNN_INVALID_LAYOUT (weights are 3DS, biases 2DS) or ZDNN_INVALID_CONCAT_INFO (usage);
 * ZDNN_INVALID_CONCAT_INFO (RNN type).
 * Source: zDNN API Reference 1.2.0, zdnn_generate_transformed_desc_concatenated.
 */
export function generateTransformedDescConcatenated(
  preTfrmdDesc: TensorDesc,
  info: number,
  tfrmdDesc: TensorDesc = create(TensorDescSchema),
): TensorDesc {
  const op = "generate_transformed_desc_concatenated";
  const { type, dim2, dim1 } = preTfrmdDesc;
  const [usage, rnn] = [CONCAT_USAGE(info), CONCAT_RNN_TYPE(info)];
  const halves = usage === USAGE_WEIGHTS && CONCAT_PREV_LAYER(info) === PREV_LAYER_BIDIR;
  if (!FLOATS.includes(type ?? -1)) {
    const limit = "FP32, FP16 or BFLOAT";
    return refuse(ZDNN_INVALID_TYPE, op, "pre_tfrmd_desc.type", type, limit, 1);
  }
  if (halves && dim2 % 2) {
    const limit = "even behind a bidirectional layer";
    return refuse(ZdnnStatus.ZDNN_INVALID_SHAPE, op, "pre_tfrmd_desc.dim2", dim2, limit, 2);
  }
  const [stack, rows] = concatenatedRows(op, preTfrmdDesc, usage, halves);
  if (rnn !== RNN_TYPE_LSTM && rnn !== RNN_TYPE_GRU) {
    const limit = "RNN_TYPE_LSTM or RNN_TYPE_GRU";
    return refuse(ZDNN_INVALID_CONCAT_INFO, op, "info", info, limit, 4);
  }
  const lstm = rnn === RNN_TYPE_LSTM;
  const [fico, zrh] = halves ? BIDIRECTIONAL : UNIDIRECTIONAL;
  tfrmdDesc.layout = lstm ? fico : zrh;
  tfrmdDesc.format = ZDNN_FORMAT_4DFEATURE;
  tfrmdDesc.type = ZDNN_DLFLOAT16;
  setDims(tfrmdDesc, [stack, 1, rows, times(lstm ? 4 : 3, padded(dim1))]);
  return shownDesc(tfrmdDesc);
}

/** Returns dim4 and dim2 of a concatenated tensor, after the checks of usage and layout. */
function concatenatedRows(
  op: string,
  pre: TensorDesc,
  usage: number,
  halves: boolean,
): readonly [number, number] {
  const biases = usage === USAGE_BIASES || usage === USAGE_HIDDEN_BIASES;
  if (!biases && usage !== USAGE_WEIGHTS && usage !== USAGE_HIDDEN_WEIGHTS) {
    return refuse(ZDNN_INVALID_CONCAT_INFO, op, "info", `usage ${usage}`, "a USAGE_ number", 3);
  }
  const layout = biases ? ZDNN_2DS : ZDNN_3DS;
  if (pre.layout !== layout) {
    const limit = DataLayouts[layout];
    return refuse(ZDNN_INVALID_LAYOUT, op, "pre_tfrmd_desc.layout", pre.layout, limit, 3);
  }
  if (biases) {
    return [pre.dim2, 1];
  }
  return [pre.dim3, halves ? times(2, padded(Math.floor(pre.dim2 / 2))) : pre.dim2];
}

/**
 * Returns the bytes of the sticks that a transformed descriptor calls for, modulo 2^64.
 *
 * Source: zDNN API Reference 1.2.0, zdnn_getsize_ztensor.
 */
export function getsizeZtensor(tfrmdDesc: TensorDesc): bigint {
  const { type, format, dim4, dim3, dim2, dim1 } = tfrmdDesc;
  let rows = dim2;
  let cells = STICK_CELLS;
  if (type === ZDNN_BINARY_INT32) {
    cells = STICK_CELLS / 2;
  } else if (type === ZDNN_BINARY_INT8 && format === ZDNN_FORMAT_4DWEIGHTS) {
    rows = Math.ceil(dim2 / 2);
  } else if (type === ZDNN_BINARY_INT8) {
    cells = STICK_CELLS * 2;
  }
  const pages = ((BigInt(rows) + STICK_ROWS - 1n) / STICK_ROWS) * BigInt(Math.ceil(dim1 / cells));
  return BigInt.asUintN(64, BigInt(dim4) * BigInt(dim3) * pages * PAGE_BYTES);
}

type Limits = readonly [max: number, min: number];

const INT8_LIMITS: Limits = [127, -128];
/** By transformed and pre-transformed type. BFLOAT's is the DLFLOAT16 maximum, truncated. */
const LIMITS: Readonly<Record<number, Readonly<Record<number, Limits>>>> = {
  [ZDNN_DLFLOAT16]: {
    [FP32]: [8573157376, -8573157376],
    [FP16]: [65504, -65504],
    [BFLOAT]: [8556380160, -8556380160],
  },
  [ZDNN_BINARY_INT8]: Object.fromEntries([...FLOATS, INT8].map((type) => [type, INT8_LIMITS])),
  [ZDNN_BINARY_INT32]: { [INT32]: [2147483647, -2147483648] },
};

function limits(op: string, transformedType: number, preTransformedType: number): Limits {
  const types = LIMITS[transformedType];
  if (types === undefined) {
    const allowed = "ZDNN_DLFLOAT16, ZDNN_BINARY_INT8 or ZDNN_BINARY_INT32";
    return refuse(ZDNN_INVALID_TYPE, op, "transformed_type", transformedType, allowed, 1);
  }
  const pair = types[preTransformedType];
  if (pair === undefined) {
    const allowed = "a type that becomes transformed_type";
    return refuse(ZDNN_INVALID_TYPE, op, "pre_transformed_type", preTransformedType, allowed, 2);
  }
  return pair;
}

/**
 * Returns the largest value of a pre-transformed type that a transformed type can hold; it is exact in
 * the pre-transformed type. Throws ZdnnError ZDNN_INVALID_TYPE.
 *
 * Source: zDNN API Reference 1.2.0, zdnn_get_max_limit.
 */
export function getMaxLimit(transformedType: number, preTransformedType: number): number {
  return limits("get_max_limit", transformedType, preTransformedType)[0];
}

/**
 * Returns the smallest value; otherwise as `getMaxLimit`.
 *
 * Source: zDNN API Reference 1.2.0, zdnn_get_min_limit.
 */
export function getMinLimit(transformedType: number, preTransformedType: number): number {
  return limits("get_min_limit", transformedType, preTransformedType)[1];
}
