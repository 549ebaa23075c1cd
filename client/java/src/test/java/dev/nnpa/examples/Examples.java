// SPDX-License-Identifier: Apache-2.0
package dev.nnpa.examples;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import dev.nnpa.Session;
import dev.nnpa.Zdnn;
import dev.nnpa.Ztensor;
import dev.nnpa.Ztensors;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Stream;

/**
 * The ten example programs of the zDNN API Reference 1.2.0, in Java: Examples TARGET.
 *
 * <p>Prints one line of JSON per example: its name, and its arrays as FP32 words.
 */
public final class Examples {
  private Examples() {}

  /** The examples by name; each returns its arrays. */
  public static Map<String, Function<Session, List<float[]>>> all() {
    Map<String, Function<Session, List<float[]>>> all = new LinkedHashMap<>();
    all.put("add", ElementwiseExamples::add);
    all.put("quantized_ztensor", ElementwiseExamples::quantizedZtensor);
    all.put("quantized_matmul", session -> QuantizedExamples.matmul(session, false, false));
    all.put("quantized_matmul_on_the_fly", session -> QuantizedExamples.matmul(session, true, false));
    all.put("quantized_matmul_pre_computed", session -> QuantizedExamples.matmul(session, false, true));
    all.put(
        "quantized_matmul_pre_computed_on_the_fly",
        session -> QuantizedExamples.matmul(session, true, true));
    all.put("lstm_forward", RecurrentExamples::lstmForward);
    all.put("lstm_bidirectional", RecurrentExamples::lstmBidirectional);
    all.put("lstm_multi_layer_bidirectional", RecurrentExamples::lstmMultiLayerBidirectional);
    all.put("gru_forward", RecurrentExamples::gruForward);
    return all;
  }

  /** Runs all, each in a session of its own. */
  public static void main(String[] arguments) {
    all()
        .forEach(
            (name, example) -> {
              try (Session session = Session.connect(arguments[0])) {
                JsonObject line = new JsonObject();
                line.addProperty("name", name);
                line.add("results", words(example.apply(session)));
                System.out.println(line);
              }
            });
  }

  private static JsonArray words(List<float[]> results) {
    JsonArray arrays = new JsonArray();
    for (float[] result : results) {
      JsonArray words = new JsonArray();
      for (float value : result) {
        words.add(String.format("%08X", Float.floatToRawIntBits(value)));
      }
      arrays.add(words);
    }
    return arrays;
  }

  /** Reads the data of ztensors back. */
  static List<float[]> read(Ztensor... ztensors) {
    return Stream.of(ztensors).map(ztensor -> Zdnn.transformOrigtensor(ztensor).floats()).toList();
  }

  /** Frees the sticks of ztensors. */
  static void free(Ztensor... ztensors) {
    Stream.of(ztensors).forEach(Ztensors::freeZtensorBuffer);
  }
}
