// SPDX-License-Identifier: Apache-2.0
package dev.nnpa.examples;

import static dev.nnpa.Constants.PREV_LAYER_BIDIR;
import static dev.nnpa.Constants.PREV_LAYER_NONE;
import static dev.nnpa.Constants.RNN_TYPE_GRU;
import static dev.nnpa.Constants.RNN_TYPE_LSTM;
import static dev.nnpa.Constants.USAGE_BIASES;
import static dev.nnpa.Constants.USAGE_HIDDEN_BIASES;
import static dev.nnpa.Constants.USAGE_HIDDEN_WEIGHTS;
import static dev.nnpa.Constants.USAGE_WEIGHTS;
import static dev.nnpa.Descriptors.generateTransformedDesc;
import static dev.nnpa.Descriptors.generateTransformedDescConcatenated;
import static dev.nnpa.Descriptors.initPreTransformedDesc;

import dev.nnpa.Session;
import dev.nnpa.UserArray;
import dev.nnpa.Zdnn;
import dev.nnpa.Ztensor;
import dev.nnpa.Ztensors;
import dev.nnpa.zdnn.v1.DataLayouts;
import dev.nnpa.zdnn.v1.DataTypes;
import dev.nnpa.zdnn.v1.LstmGruDirection;
import dev.nnpa.zdnn.v1.TensorDesc;
import java.util.List;
import java.util.stream.IntStream;

/** The examples of applications calling the zdnn_lstm and zdnn_gru APIs. */
final class RecurrentExamples {
  private static final int TIMESTEPS = 5;
  private static final int BATCHES = 3;
  private static final int FEATURES = 32;
  private static final int HIDDEN = 5;

  private RecurrentExamples() {}

  private static UserArray fill(int start, int... dims) {
    float[] data = new float[IntStream.of(dims).reduce(1, (a, b) -> a * b)];
    for (int place = 0; place < data.length; place++) {
      data[place] = ((place + start) * 7 % 23 - 11) / 32f;
    }
    return UserArray.of(data);
  }

  private static Ztensor empty(Session session, DataLayouts layout, int... dims) {
    TensorDesc pre = initPreTransformedDesc(layout, DataTypes.FP32, dims);
    return Ztensors.initZtensorWithMalloc(session, pre, generateTransformedDesc(pre));
  }

  private static Ztensor filled(Session session, int start, int... dims) {
    return Zdnn.transformZtensor(empty(session, DataLayouts.ZDNN_3DS, dims), fill(start, dims));
  }

  /**
   * Makes weights (three dims) or biases (two), gates concatenated, filled from {@code start} on.
   */
  private static Ztensor gates(Session session, int info, int start, int... dims) {
    DataLayouts layout = dims.length == 3 ? DataLayouts.ZDNN_3DS : DataLayouts.ZDNN_2DS;
    TensorDesc pre = initPreTransformedDesc(layout, DataTypes.FP32, dims);
    TensorDesc tfrmd = generateTransformedDescConcatenated(pre, info);
    int count = (info & RNN_TYPE_GRU) != 0 ? 3 : 4;
    UserArray[] data =
        IntStream.range(0, count)
            .mapToObj(gate -> fill(start + gate, dims))
            .toArray(UserArray[]::new);
    return Zdnn.transformZtensor(Ztensors.initZtensorWithMalloc(session, pre, tfrmd), data);
  }

  /** Runs one LSTM layer from input to hn and cf. */
  private static void lstm(
      Session session,
      LstmGruDirection direction,
      int previous,
      Ztensor input,
      int features,
      Ztensor hn,
      Ztensor cf) {
    int directions = direction == LstmGruDirection.BIDIR ? 2 : 1;
    int hidden = hn.preTransformedDesc().getDim1();
    int batches = input.preTransformedDesc().getDim2();
    int type = RNN_TYPE_LSTM | previous;
    Ztensor h0 = filled(session, 1, directions, batches, hidden);
    Ztensor c0 = filled(session, 2, directions, batches, hidden);
    Ztensor weights = gates(session, type | USAGE_WEIGHTS, 3, directions, features, hidden);
    Ztensor biases = gates(session, type | USAGE_BIASES, 7, directions, hidden);
    Ztensor hiddenWeights =
        gates(session, type | USAGE_HIDDEN_WEIGHTS, 11, directions, hidden, hidden);
    Ztensor hiddenBiases = gates(session, type | USAGE_HIDDEN_BIASES, 15, directions, hidden);
    Zdnn.lstm(
        input, h0, c0, weights, biases, hiddenWeights, hiddenBiases, direction, hn, cf, false);
    Examples.free(h0, c0, weights, biases, hiddenWeights, hiddenBiases);
  }

  private static List<float[]> layer(
      Session session, LstmGruDirection direction, Ztensor hn, Ztensor cf) {
    Ztensor input = filled(session, 0, TIMESTEPS, BATCHES, FEATURES);
    lstm(session, direction, PREV_LAYER_NONE, input, FEATURES, hn, cf);
    List<float[]> results = Examples.read(hn, cf);
    Examples.free(input, hn, cf);
    return results;
  }

  /** Runs an LSTM layer forward: the last hidden state and the last cell state. */
  static List<float[]> lstmForward(Session session) {
    Ztensor hn = empty(session, DataLayouts.ZDNN_4DS, 1, 1, BATCHES, HIDDEN);
    Ztensor cf = empty(session, DataLayouts.ZDNN_4DS, 1, 1, BATCHES, HIDDEN);
    return layer(session, LstmGruDirection.FWD, hn, cf);
  }

  /** Runs an LSTM layer both ways: all hidden states and the last cell states. */
  static List<float[]> lstmBidirectional(Session session) {
    Ztensor hn = empty(session, DataLayouts.ZDNN_4DS, TIMESTEPS, 2, BATCHES, HIDDEN);
    Ztensor cf = empty(session, DataLayouts.ZDNN_4DS, 1, 2, BATCHES, HIDDEN);
    return layer(session, LstmGruDirection.BIDIR, hn, cf);
  }

  /** Runs a GRU layer forward: the last hidden state. */
  static List<float[]> gruForward(Session session) {
    Ztensor input = filled(session, 0, TIMESTEPS, BATCHES, FEATURES);
    Ztensor h0 = filled(session, 1, 1, BATCHES, HIDDEN);
    int type = RNN_TYPE_GRU | PREV_LAYER_NONE;
    Ztensor weights = gates(session, type | USAGE_WEIGHTS, 3, 1, FEATURES, HIDDEN);
    Ztensor biases = gates(session, type | USAGE_BIASES, 7, 1, HIDDEN);
    Ztensor hiddenWeights = gates(session, type | USAGE_HIDDEN_WEIGHTS, 11, 1, HIDDEN, HIDDEN);
    Ztensor hiddenBiases = gates(session, type | USAGE_HIDDEN_BIASES, 15, 1, HIDDEN);
    Ztensor hn = empty(session, DataLayouts.ZDNN_4DS, 1, 1, BATCHES, HIDDEN);
    Zdnn.gru(
        input, h0, weights, biases, hiddenWeights, hiddenBiases, LstmGruDirection.FWD, hn, false);
    List<float[]> results = Examples.read(hn);
    Examples.free(input, h0, weights, biases, hiddenWeights, hiddenBiases, hn);
    return results;
  }

  /** Runs two LSTM layers, each both ways: the hidden states of each. */
  static List<float[]> lstmMultiLayerBidirectional(Session session) {
    Ztensor input = filled(session, 0, TIMESTEPS, BATCHES, FEATURES);
    Ztensor first = empty(session, DataLayouts.ZDNN_4DS, TIMESTEPS, 2, BATCHES, 5);
    Ztensor second = empty(session, DataLayouts.ZDNN_4DS, TIMESTEPS, 2, BATCHES, 4);
    bidirectional(session, PREV_LAYER_NONE, input, FEATURES, first);
    bidirectional(session, PREV_LAYER_BIDIR, first, 2 * 5, second);
    List<float[]> results = Examples.read(first, second);
    Examples.free(input, first, second);
    return results;
  }

  private static void bidirectional(
      Session session, int previous, Ztensor input, int features, Ztensor hn) {
    int hidden = hn.preTransformedDesc().getDim1();
    Ztensor cf = empty(session, DataLayouts.ZDNN_4DS, 1, 2, BATCHES, hidden);
    lstm(session, LstmGruDirection.BIDIR, previous, input, features, hn, cf);
    Examples.free(cf);
  }
}
