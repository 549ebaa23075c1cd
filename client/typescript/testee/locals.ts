// SPDX-License-Identifier: Apache-2.0

/** The local functions, as the conformance protocol calls them. */

import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { connect, ZdnnError, zdnn } from "nnpa";
import { type TensorDesc, TensorDescSchema } from "nnpa/zdnn/v1";

import { fp16Word, fp32Word, wordsOf } from "./words.js";

/** Arguments or a descriptor, by C's names. */
export type Json = Record<string, unknown>;

/** Returns the descriptor of plain JSON. */
export function descriptor(line: unknown): TensorDesc {
  return create(TensorDescSchema, line as MessageInitShape<typeof TensorDescSchema>);
}

function fields(desc: TensorDesc): Json {
  const { layout, format, type, dim4, dim3, dim2, dim1 } = desc;
  return { layout, format, type, dim4, dim3, dim2, dim1 };
}

function limitWord(limit: number, type: number): string {
  switch (type) {
    case zdnn.FP16:
      return fp16Word(limit);
    case zdnn.BFLOAT:
      return fp32Word(limit).slice(0, 4);
    case zdnn.INT8:
      return wordsOf(new Uint8Array(Int8Array.of(limit).buffer), 1);
    case zdnn.INT32:
      return wordsOf(new Uint8Array(Int32Array.of(limit).buffer), 4);
    default:
      return fp32Word(limit);
  }
}

const FUNCTIONS: Record<string, (a: Json) => unknown> = {
  init_pre_transformed_desc: (a) =>
    fields(zdnn.initPreTransformedDesc(Number(a.layout), Number(a.type), ...(a.dims as number[]))),
  generate_transformed_desc: (a) => fields(zdnn.generateTransformedDesc(pre(a))),
  generate_quantized_transformed_desc: (a) =>
    fields(zdnn.generateQuantizedTransformedDesc(pre(a), Number(a.transform_type))),
  generate_transformed_desc_concatenated: (a) =>
    fields(zdnn.generateTransformedDescConcatenated(pre(a), Number(a.info))),
  getsize_ztensor: (a) => zdnn.getsizeZtensor(descriptor(a.transformed_desc)),
  get_max_limit: (a) => limit(zdnn.getMaxLimit, a),
  get_min_limit: (a) => limit(zdnn.getMinLimit, a),
  get_status_message: (a) => zdnn.getStatusMessage(Number(a.status)),
};

function pre(a: Json): TensorDesc {
  return descriptor(a.pre_transformed_desc);
}

function limit(bound: (transformed: number, pre: number) => number, a: Json): string {
  const type = Number(a.pre_transformed_type);
  return limitWord(bound(Number(a.transformed_type), type), type);
}

/** Calls a local function by its C name without prefix. */
export async function callLocal(target: string, name: string, a: Json): Promise<Json> {
  const local = FUNCTIONS[name];
  try {
    return { result: local === undefined ? await inSession(target, name, a) : local(a) };
  } catch (error) {
    if (error instanceof ZdnnError) {
      return { status: error.status };
    }
    throw error;
  }
}

async function inSession(target: string, name: string, a: Json): Promise<unknown> {
  await using session = await connect(target, { library: (a.library as string | undefined) ?? "1.2.0" });
  switch (name) {
    case "get_library_version":
      return zdnn.getLibraryVersion(session);
    case "get_library_version_str":
      return zdnn.getLibraryVersionStr(session);
    case "is_quantized_ztensor": {
      const desc = zdnn.initPreTransformedDesc(zdnn.ZDNN_1D, zdnn.FP32, 1);
      const transformedDesc = zdnn.generateTransformedDesc(desc);
      const structure = { transformedDesc, recScale: Number(a.rec_scale) };
      return zdnn.isQuantizedZtensor(await session.putZtensor(structure));
    }
    default:
      throw new Error(`${name}: not a local function of zDNN`);
  }
}
