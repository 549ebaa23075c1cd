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
import { dims, type Dims, rank } from "./elements.js";
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

const UINT32_MAX = 0xffffffff;
const FLOATS: readonly number[] = [DataTypes.FP32, DataTypes.FP16, DataTypes.BFLOAT];
/** Cells of 16 bits in a stick of 128 bytes. */
const STICK_CELLS = 64;
const STICK_ROWS = 32n;
const PAGE_BYTES = 4096n;

type DimsMapping = (...sizes: Dims) => Dims;

/** The transformed dims of a layout; these layouts may be quantized too. */
const QUANTIZABLE = new Map<number, DimsMapping>([
  [DataLayouts.ZDNN_1D, (_d4, _d3, _d2, d1) => [1, 1, 1, d1]],
  [DataLayouts.ZDNN_2D, (_d4, _d3, d2, d1) => [1, 1, d2, d1]],
  [DataLayouts.ZDNN_2DS, (_d4, _d3, d2, d1) => [d2, 1, 1, d1]],
  [DataLayouts.ZDNN_3D, (_d4, d3, d2, d1) => [1, d3, d2, d1]],
  [DataLayouts.ZDNN_3DS, (_d4, d3, d2, d1) => [d3, 1, d2, d1]],
  [DataLayouts.ZDNN_4D, (...sizes) => sizes],
  [DataLayouts.ZDNN_NHWC, (...sizes) => sizes],
]);
const UNQUANTIZED = new Map<number, DimsMapping>([
  [DataLayouts.ZDNN_NCHW, (n, channels, h, w) => [n, h, w, channels]],
  [DataLayouts.ZDNN_HWCK, (...sizes) => sizes],
  [
    DataLayouts.ZDNN_4DS,
    (ts, directions, b, s) => [ts, 1, b, directions === 1 ? s : times(directions, padded(s))],
  ],
]);
/** Layouts of LSTM's and GRU's gates, by the direction of the layer before. */
const UNIDIRECTIONAL = [DataLayouts.ZDNN_FICO, DataLayouts.ZDNN_ZRH] as const;
const BIDIRECTIONAL = [DataLayouts.ZDNN_BIDIR_FICO, DataLayouts.ZDNN_BIDIR_ZRH] as const;
const QUANTIZED = new Map<number, readonly [DataFormats, DataTypes]>([
  [
    QuantizedTransformTypes.QUANTIZED_DLFLOAT16,
    [DataFormats.ZDNN_FORMAT_4DFEATURE, DataTypes.ZDNN_DLFLOAT16],
  ],
  [
    QuantizedTransformTypes.QUANTIZED_INT8,
    [DataFormats.ZDNN_FORMAT_4DFEATURE, DataTypes.ZDNN_BINARY_INT8],
  ],
  [
    QuantizedTransformTypes.QUANTIZED_WEIGHTS_INT8,
    [DataFormats.ZDNN_FORMAT_4DWEIGHTS, DataTypes.ZDNN_BINARY_INT8],
  ],
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

function setDims(desc: TensorDesc, sizes: Dims): void {
  [desc.dim4, desc.dim3, desc.dim2, desc.dim1] = sizes;
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
  const all: number[] = [0, 0, 0, 0];
  for (const [index, size] of sizes.slice(0, dimCount).entries()) {
    if (!Number.isInteger(size) || size < 0 || size > UINT32_MAX) {
      throw new RangeError(`dim${dimCount - index}: ${size}, expected 0 to ${UINT32_MAX}`);
    }
    all[4 - dimCount + index] = size;
  }
  const desc = create(TensorDescSchema, { layout: layout | 0, type: type | 0 });
  setDims(desc, all as unknown as Dims);
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
  const mapping = QUANTIZABLE.get(layout ?? -1) ?? UNQUANTIZED.get(layout ?? -1);
  if (mapping === undefined) {
    const field = "pre_tfrmd_desc.layout";
    return refuse(ZdnnStatus.ZDNN_INVALID_LAYOUT, op, field, layout, "a plain one", 1);
  }
  const kernel = layout === DataLayouts.ZDNN_HWCK;
  tfrmdDesc.layout = kernel ? DataLayouts.ZDNN_HWCK : DataLayouts.ZDNN_NHWC;
  tfrmdDesc.format = kernel
    ? DataFormats.ZDNN_FORMAT_4DKERNEL
    : DataFormats.ZDNN_FORMAT_4DFEATURE;
  setDims(tfrmdDesc, mapping(...dims(preTfrmdDesc)));
  if (![...FLOATS, DataTypes.INT32].includes(type ?? -1)) {
    const limit = "FP32, FP16, BFLOAT or INT32";
    return refuse(ZdnnStatus.ZDNN_INVALID_TYPE, op, "pre_tfrmd_desc.type", type, limit, 2);
  }
  const integers = type === DataTypes.INT32;
  tfrmdDesc.type = integers ? DataTypes.ZDNN_BINARY_INT32 : DataTypes.ZDNN_DLFLOAT16;
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
  const mapping = QUANTIZABLE.get(layout ?? -1);
  if (mapping === undefined) {
    const limit = "1D, 2D, 2DS, 3D, 3DS, 4D or NHWC";
    return refuse(ZdnnStatus.ZDNN_INVALID_LAYOUT, op, "pre_tfrmd_desc.layout", layout, limit, 1);
  }
  if (![...FLOATS, DataTypes.INT8].includes(type ?? -1)) {
    const limit = "FP32, FP16, BFLOAT or INT8";
    return refuse(ZdnnStatus.ZDNN_INVALID_TYPE, op, "pre_tfrmd_desc.type", type, limit, 2);
  }
  const chosen = QUANTIZED.get(transformType);
  if (chosen === undefined) {
    const status = ZdnnStatus.ZDNN_INVALID_TRANSFORM_TYPE;
    return refuse(status, op, "transform_type", transformType, "0, 1 or 2", 3);
  }
  tfrmdDesc.layout = DataLayouts.ZDNN_NHWC;
  [tfrmdDesc.format, tfrmdDesc.type] = chosen;
  setDims(tfrmdDesc, mapping(...dims(preTfrmdDesc)));
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
    return refuse(ZdnnStatus.ZDNN_INVALID_TYPE, op, "pre_tfrmd_desc.type", type, limit, 1);
  }
  if (halves && dim2 % 2) {
    const limit = "even behind a bidirectional layer";
    return refuse(ZdnnStatus.ZDNN_INVALID_SHAPE, op, "pre_tfrmd_desc.dim2", dim2, limit, 2);
  }
  const [stack, rows] = concatenatedRows(op, preTfrmdDesc, usage, halves);
  if (rnn !== RNN_TYPE_LSTM && rnn !== RNN_TYPE_GRU) {
    const limit = "RNN_TYPE_LSTM or RNN_TYPE_GRU";
    return refuse(ZdnnStatus.ZDNN_INVALID_CONCAT_INFO, op, "info", info, limit, 4);
  }
  const lstm = rnn === RNN_TYPE_LSTM;
  const [fico, zrh] = halves ? BIDIRECTIONAL : UNIDIRECTIONAL;
  tfrmdDesc.layout = lstm ? fico : zrh;
  tfrmdDesc.format = DataFormats.ZDNN_FORMAT_4DFEATURE;
  tfrmdDesc.type = DataTypes.ZDNN_DLFLOAT16;
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
    const status = ZdnnStatus.ZDNN_INVALID_CONCAT_INFO;
    return refuse(status, op, "info", `usage ${usage}`, "a USAGE_ number", 3);
  }
  const layout = biases ? DataLayouts.ZDNN_2DS : DataLayouts.ZDNN_3DS;
  if (pre.layout !== layout) {
    const status = ZdnnStatus.ZDNN_INVALID_LAYOUT;
    const limit = DataLayouts[layout];
    return refuse(status, op, "pre_tfrmd_desc.layout", pre.layout, limit, 3);
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
  if (type === DataTypes.ZDNN_BINARY_INT32) {
    cells = STICK_CELLS / 2;
  } else if (type === DataTypes.ZDNN_BINARY_INT8) {
    if (format === DataFormats.ZDNN_FORMAT_4DWEIGHTS) {
      rows = Math.ceil(dim2 / 2);
    } else {
      cells = STICK_CELLS * 2;
    }
  }
  const pages = ((BigInt(rows) + STICK_ROWS - 1n) / STICK_ROWS) * BigInt(Math.ceil(dim1 / cells));
  return BigInt.asUintN(64, BigInt(dim4) * BigInt(dim3) * pages * PAGE_BYTES);
}

type Limits = readonly [max: number, min: number];

const INT8_LIMITS: Limits = [127, -128];
/** BFLOAT's is the DLFLOAT16 maximum, truncated. */
const LIMITS = new Map<number, ReadonlyMap<number, Limits>>([
  [
    DataTypes.ZDNN_DLFLOAT16,
    new Map<number, Limits>([
      [DataTypes.FP32, [8573157376, -8573157376]],
      [DataTypes.FP16, [65504, -65504]],
      [DataTypes.BFLOAT, [8556380160, -8556380160]],
    ]),
  ],
  [
    DataTypes.ZDNN_BINARY_INT8,
    new Map([...FLOATS, DataTypes.INT8].map((type) => [type, INT8_LIMITS])),
  ],
  [
    DataTypes.ZDNN_BINARY_INT32,
    new Map<number, Limits>([[DataTypes.INT32, [2147483647, -2147483648]]]),
  ],
]);

function limits(op: string, transformedType: number, preTransformedType: number): Limits {
  const status = ZdnnStatus.ZDNN_INVALID_TYPE;
  const types = LIMITS.get(transformedType);
  if (types === undefined) {
    const allowed = "ZDNN_DLFLOAT16, ZDNN_BINARY_INT8 or ZDNN_BINARY_INT32";
    return refuse(status, op, "transformed_type", transformedType, allowed, 1);
  }
  const pair = types.get(preTransformedType);
  if (pair === undefined) {
    const allowed = "a type that becomes transformed_type";
    return refuse(status, op, "pre_transformed_type", preTransformedType, allowed, 2);
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
