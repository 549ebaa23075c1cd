// SPDX-License-Identifier: Apache-2.0

import { type Session, zdnn, type Ztensor } from "nnpa";

import { fractions } from "./fill.js";

const TIMESTEPS = 5;
const BATCHES = 3;
const FEATURES = 32;
const HIDDEN = 5;

function product(sizes: readonly number[]): number {
  return sizes.reduce((all, size) => all * size, 1);
}

/** Makes a ztensor of a plain layout, filled from `start` on, or empty. */
async function plain(
  session: Session,
  layout: number,
  sizes: readonly number[],
  start?: number,
): Promise<Ztensor> {
  const pre = zdnn.initPreTransformedDesc(layout, zdnn.FP32, ...sizes);
  const tfrmd = zdnn.generateTransformedDesc(pre);
  const ztensor = await zdnn.initZtensorWithMalloc(session, pre, tfrmd);
  return start === undefined
    ? ztensor
    : zdnn.transformZtensor(ztensor, fractions(product(sizes), start));
}

/** Makes weights or biases with their gates side by side, filled from `start` on. */
async function concatenated(
  session: Session,
  info: number,
  sizes: readonly number[],
  start: number,
): Promise<Ztensor> {
  const layout = sizes.length === 3 ? zdnn.ZDNN_3DS : zdnn.ZDNN_2DS;
  const pre = zdnn.initPreTransformedDesc(layout, zdnn.FP32, ...sizes);
  const tfrmd = zdnn.generateTransformedDescConcatenated(pre, info);
  const ztensor = await zdnn.initZtensorWithMalloc(session, pre, tfrmd);
  const gates = zdnn.CONCAT_RNN_TYPE(info) === zdnn.RNN_TYPE_LSTM ? 4 : 3;
  const data = Array.from({ length: gates }, (_, gate) => fractions(product(sizes), start + gate));
  return zdnn.transformZtensor(ztensor, data);
}

/** Weights, biases, hidden weights and hidden biases of a layer. */
type Parameters = [Ztensor, Ztensor, Ztensor, Ztensor];

async function parameters(
  session: Session,
  layer: number,
  directions: number,
  features: number,
  hidden: number,
): Promise<Parameters> {
  const [d, f, h] = [directions, features, hidden];
  return [
    await concatenated(session, layer | zdnn.USAGE_WEIGHTS, [d, f, h], 3),
    await concatenated(session, layer | zdnn.USAGE_BIASES, [d, h], 7),
    await concatenated(session, layer | zdnn.USAGE_HIDDEN_WEIGHTS, [d, h, h], 11),
    await concatenated(session, layer | zdnn.USAGE_HIDDEN_BIASES, [d, h], 15),
  ];
}

async function freeAll(...ztensors: Ztensor[]): Promise<void> {
  for (const ztensor of ztensors) {
    await zdnn.freeZtensorBuffer(ztensor);
  }
}

async function fetched(ztensor: Ztensor): Promise<Float32Array> {
  const data = new Float32Array(product(ztensor.shape));
  await zdnn.transformOrigtensor(ztensor, data);
  return data;
}

/**
 * Runs an LSTM layer, returns its hidden states and last cell states: the zDNN API Reference 1.2.0's
 * examples "of an application calling the zdnn_lstm API" (forward), of the last timestep, and
 * (bi-directional), of all timesteps.
 */
export function lstm(direction: zdnn.LstmGruDirection) {
  return async (session: Session): Promise<Float32Array[]> => {
    const directions = direction === zdnn.BIDIR ? 2 : 1;
    const input = await plain(session, zdnn.ZDNN_3DS, [TIMESTEPS, BATCHES, FEATURES], 0);
    const h0 = await plain(session, zdnn.ZDNN_3DS, [directions, BATCHES, HIDDEN], 1);
    const c0 = await plain(session, zdnn.ZDNN_3DS, [directions, BATCHES, HIDDEN], 2);
    const layer = zdnn.RNN_TYPE_LSTM | zdnn.PREV_LAYER_NONE;
    const weights = await parameters(session, layer, directions, FEATURES, HIDDEN);
    const timesteps = directions === 2 ? TIMESTEPS : 1;
    const hn = await plain(session, zdnn.ZDNN_4DS, [timesteps, directions, BATCHES, HIDDEN]);
    const cf = await plain(session, zdnn.ZDNN_4DS, [1, directions, BATCHES, HIDDEN]);
    await zdnn.lstm(input, h0, c0, ...weights, direction, hn, cf);
    const results = [await fetched(hn), await fetched(cf)];
    await freeAll(input, h0, c0, ...weights, hn, cf);
    return results;
  };
}

/** Runs one bidirectional layer from input to hn. */
async function bidirectionalLayer(
  session: Session,
  input: Ztensor,
  hidden: number,
  hn: Ztensor,
  behindBidirectional: boolean,
): Promise<void> {
  const { dim2: batches, dim1 } = input.preTransformedDesc;
  const features = dim1 * (behindBidirectional ? 2 : 1);
  const h0 = await plain(session, zdnn.ZDNN_3DS, [2, batches, hidden], 1);
  const c0 = await plain(session, zdnn.ZDNN_3DS, [2, batches, hidden], 2);
  const before = behindBidirectional ? zdnn.PREV_LAYER_BIDIR : zdnn.PREV_LAYER_UNI;
  const weights = await parameters(session, zdnn.RNN_TYPE_LSTM | before, 2, features, hidden);
  const cf = await plain(session, zdnn.ZDNN_4DS, [1, 2, batches, hidden]);
  await zdnn.lstm(input, h0, c0, ...weights, zdnn.BIDIR, hn, cf);
  await freeAll(h0, c0, ...weights, cf);
}

/**
 * Runs two LSTM layers, each both ways, and returns the hidden states of each: the zDNN API Reference
 * 1.2.0's "Example of an application calling the zdnn_lstm API (multi-layer bi-directional)".
 */
export async function lstmMultiLayerBidirectional(session: Session): Promise<Float32Array[]> {
  const input = await plain(session, zdnn.ZDNN_3DS, [TIMESTEPS, BATCHES, FEATURES], 0);
  const first = await plain(session, zdnn.ZDNN_4DS, [TIMESTEPS, 2, BATCHES, 5]);
  const second = await plain(session, zdnn.ZDNN_4DS, [TIMESTEPS, 2, BATCHES, 4]);
  await bidirectionalLayer(session, input, 5, first, false);
  await bidirectionalLayer(session, first, 4, second, true);
  const results = [await fetched(first), await fetched(second)];
  await freeAll(input, first, second);
  return results;
}

/**
 * Runs a GRU layer forward and returns the last hidden state: the zDNN API Reference 1.2.0's "Example
 * of an application calling the zdnn_gru API (forward)".
 */
export async function gruForward(session: Session): Promise<Float32Array[]> {
  const input = await plain(session, zdnn.ZDNN_3DS, [TIMESTEPS, BATCHES, FEATURES], 0);
  const h0 = await plain(session, zdnn.ZDNN_3DS, [1, BATCHES, HIDDEN], 1);
  const layer = zdnn.RNN_TYPE_GRU | zdnn.PREV_LAYER_NONE;
  const weights = await parameters(session, layer, 1, FEATURES, HIDDEN);
  const hn = await plain(session, zdnn.ZDNN_4DS, [1, 1, BATCHES, HIDDEN]);
  await zdnn.gru(input, h0, ...weights, zdnn.FWD, hn);
  const results = [await fetched(hn)];
  await freeAll(input, h0, ...weights, hn);
  return results;
}
