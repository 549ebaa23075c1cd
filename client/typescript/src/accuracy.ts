// SPDX-License-Identifier: Apache-2.0

/** How far a hosted network is from its model in FP32, over the rows of a dataset; and where it fails. */

import type { MessageInitShape } from "@bufbuild/protobuf";

import type {
  MeasureAccuracyRequestSchema,
  MeasureAccuracyResponse,
} from "./gen/nnpa/network/v1/network_pb.js";
import {
  arrayOf,
  encoded,
  type NetworkArray,
  type NetworkData,
  type Port,
  rowBytes,
} from "./network_arrays.js";
import type { CallOptions } from "./transport.js";

/** Most rows of a request; source: MeasureAccuracyRequest.batch_rows. */
const MAX_BATCH_ROWS = 4096;
const MAX_BATCH_BYTES = 2 ** 23;
/** Bytes of sticks. */
const MAX_BATCH_SPACE = 2 ** 29;

type Init = MessageInitShape<typeof MeasureAccuracyRequestSchema>;
/** Fields of a request. */
type Request = Extract<Init, { readonly $typeName?: undefined }>;

/** How to measure; see the comments of `MeasureAccuracyRequest` in the wire contract. */
export interface AccuracyOptions extends CallOptions {
  /** What the answers should be, as many for each row as some output has answers. */
  labels?: readonly (number | bigint)[];
  /** The machines to measure. Default: both Telums. */
  machines?: string[];
  /** Rows of a request, 1 to 4096. Default: a number by the size of a row. */
  batchRows?: number;
  /** How many of the first rows are measured node by node, 0 to 1024. Default 16. */
  nodeRows?: number;
  /** Measure as well what becomes of the model on Telum II with constant matrices in INT8. */
  int8?: boolean;
  /** The loss, as a share, that the verdict compares with. */
  maxDrop?: number;
  /** Make the page as well. */
  html?: boolean;
  /** Lines of the report that only the caller knows, such as the name of the data. */
  about?: Record<string, string>;
}

/** The figures of FP32 or of one machine. */
export interface AccuracyRun {
  /** "FP32", a machine, or a machine with "int8". */
  readonly run: string;
  /** Shares of the labels, null without them. */
  readonly accuracy: number | null;
  readonly top5: number | null;
  /** The loss beside FP32. */
  readonly drop: number;
  /** Rows whose answer turned. */
  readonly changed: number;
  /** The largest relative error of the outputs, null where none has numbers. */
  readonly l2r: number | null;
}

/** What DLFLOAT16 does to a model. */
export interface Accuracy {
  /** The sentence that answers. */
  readonly verdict: string;
  /** What the worst machine loses: accuracy, or without labels the share of answers. */
  readonly drop: number;
  /** Figures side by side: FP32 where there are labels, each machine, and INT8. */
  readonly table: readonly AccuracyRun[];
  /** The whole report, with the keys of `nnpa network validate --json`. */
  readonly report: Readonly<Record<string, unknown>>;
  /** The report for people. */
  readonly text: string;
  /** The report as a page, empty unless asked for. */
  readonly html: string;
}

/** One run of `Network.probe`: where, over which inputs, and what it gave. */
export interface ProbeRun {
  readonly machine: string;
  /** Values of free dims, by their names. */
  readonly sizes: Readonly<Record<string, number>>;
  /** What the inputs are: "zeros", "constants", "all masked", "extremes". */
  readonly inputs: string;
  /** NaN elements of all outputs. */
  readonly nans: number;
  /** Calls with a range violation. */
  readonly violations: number;
  /** The node of the first violation, "" without one. */
  readonly first: string;
  /** Why the run could not take place, "" where it did. */
  readonly limit: string;
}

/** The rows of a dataset for all inputs of a network, in batches, with their labels. */
export class Rows {
  readonly #arrays: readonly (readonly [Port, NetworkArray])[];
  readonly #labels: BigInt64Array;
  readonly count: number;

  /** Takes an array for each input; throws TypeError for those that are not of its type and shape. */
  constructor(
    inputs: readonly (readonly [Port, NetworkData | NetworkArray])[],
    labels: readonly (number | bigint)[] = [],
  ) {
    this.#arrays = inputs.map(([port, value]) => {
      const rows = overRows(port, "shape" in value ? value.shape.length : undefined);
      return [rows, arrayOf(rows, value)] as const;
    });
    this.#labels = BigInt64Array.from(labels, BigInt);
    const [first] = this.#arrays;
    this.count = first?.[1].shape[0] ?? 0;
    for (const [{ name }, { shape }] of this.#arrays) {
      if (shape[0] !== this.count) {
        const text = `got ${String(shape[0])} rows, expected ${this.count}`;
        throw new TypeError(`input ${name}: ${text}, as of ${first?.[0].name ?? ""}`);
      }
    }
    if (!this.count) {
      throw new TypeError("rows: got none, expected at least 1");
    }
    if (labels.length % this.count) {
      const text = `got ${labels.length} for ${this.count} rows`;
      throw new TypeError(`labels: ${text}, expected as many for each`);
    }
  }

  /** Returns rows and their labels as fields of a request; the last row is not among them. */
  batch(first: number, last: number): Request {
    const rows = this.#arrays.map(([port, array]) => encoded(port, part(array, first, last)));
    if (!this.#labels.length) {
      return { rows };
    }
    const each = this.#labels.length / this.count;
    const port = { name: "labels", dtype: "int64", shape: [-1, each] };
    const array = { data: this.#labels, shape: [this.count, each] };
    return { rows, labels: encoded(port, part(array, first, last)) };
  }

  /** Returns a power of two by the bytes of a row, and by what a run of it takes for sticks. */
  batchRows(inputs: readonly Port[], activations: number): number {
    const total = (sizes: number[]): number => sizes.reduce((sum, size) => sum + size, 0);
    const row = total(this.#arrays.map(([port, { shape }]) => rowBytes(port, shape.slice(1))));
    const declared = total(inputs.map((port) => rowBytes(port, port.shape)));
    const space = activations * Math.max(1, Math.floor(row / Math.max(declared, 1)));
    const bounds = [MAX_BATCH_BYTES / Math.max(row, 1), MAX_BATCH_SPACE / Math.max(space, 1)];
    const most = Math.max(1, Math.min(MAX_BATCH_ROWS, ...bounds));
    return 2 ** Math.floor(Math.log2(most));
  }
}

/** Returns an input over rows: its first dim where that is free, else one dim more. */
function overRows(port: Port, dims?: number): Port {
  const own = (port.shape[0] ?? 0) < 0 && (dims ?? port.shape.length) === port.shape.length;
  return own ? port : { ...port, shape: [-1, ...port.shape] };
}

/** Returns rows, which lie along the first axis: the first included, the last not. */
function part({ data, shape }: NetworkArray, first: number, last: number): NetworkArray {
  const each = data.length / (shape[0] ?? 1);
  const rows = Array.isArray(data)
    ? (data as readonly string[]).slice(first * each, last * each)
    : (data as Exclude<NetworkData, readonly string[]>).subarray(first * each, last * each);
  return { data: rows, shape: [last - first, ...shape.slice(1)] };
}

/** Returns the rows of a request; throws RangeError for a number that none can have. */
export function checkedBatchRows(rows: number): number {
  if (!Number.isInteger(rows) || rows < 1 || rows > MAX_BATCH_ROWS) {
    throw new RangeError(`batchRows: got ${rows}, expected 1 to ${MAX_BATCH_ROWS}`);
  }
  return rows;
}

/** Returns what every request says. */
export function settingsOf({ machines = [], nodeRows, int8 = false }: AccuracyOptions): Request {
  return { machines, int8, ...(nodeRows === undefined ? {} : { nodeRows }) };
}

/** Returns what the last request says. */
export function reportSettingsOf({ maxDrop, html = false, about = {} }: AccuracyOptions): Request {
  return { html, about, ...(maxDrop === undefined ? {} : { maxDrop }) };
}

interface Labelled {
  accuracy: number | null;
  top5: number | null;
}

interface Report extends Record<string, unknown> {
  verdict: string;
  fp32: Labelled | null;
  runs: {
    machine: string;
    numbers: string;
    drop: number | null;
    changed: number;
    labels: Labelled | null;
    outputs: { l2r: number | null }[];
  }[];
}

/** Returns what a response says. */
export function accuracyOf({ json, text, html }: MeasureAccuracyResponse): Accuracy {
  const report = JSON.parse(json) as Report;
  const { verdict, fp32 } = report;
  const table = fp32 ? [figures("FP32", fp32, 0, 0, 0)] : [];
  const drops = [0];
  for (const { machine, numbers, drop, changed, labels, outputs } of report.runs) {
    if (drop === null) {
      continue; // values beyond DLFLOAT16 do not saturate in it
    }
    const errors = outputs.flatMap(({ l2r }) => (l2r === null ? [] : [l2r]));
    const isInt8 = numbers !== "dlfloat16";
    const l2r = errors.length ? Math.max(...errors) : null;
    table.push(figures(isInt8 ? `${machine} int8` : machine, labels, drop, changed, l2r));
    drops.push(isInt8 ? 0 : drop);
  }
  return { verdict, drop: Math.max(...drops), table, report, text, html };
}

function figures(
  run: string,
  labels: Labelled | null,
  drop: number,
  changed: number,
  l2r: number | null,
): AccuracyRun {
  const { accuracy, top5 } = labels ?? { accuracy: null, top5: null };
  return { run, accuracy, top5, drop, changed, l2r };
}
