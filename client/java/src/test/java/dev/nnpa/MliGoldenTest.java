// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.nnpa.mli.v1.BuildOptions;
import dev.nnpa.mli.v1.ElType;
import dev.nnpa.mli.v1.RnnCellCfg;
import dev.nnpa.mli.v1.RnnMode;
import dev.nnpa.mli.v1.RnnOutActivation;
import dev.nnpa.mli.v1.Rounding;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Kernels of embARC MLI against the library's reference cases, in both roundings. */
final class MliGoldenTest {
  private static final Path FOLDER = Path.of("../../tests/vectors/mli");
  private static Session session;

  @BeforeAll
  static void start() {
    session = Session.connect(LocalServer.shared().unix());
  }

  @AfterAll
  static void end() {
    session.close();
  }

  private static JsonObject table(String name) throws IOException {
    return JsonParser.parseString(Files.readString(FOLDER.resolve(name + ".json")))
        .getAsJsonObject();
  }

  private static Mli library(Rounding rounding) {
    return new Mli(session, BuildOptions.newBuilder().setRounding(rounding).build());
  }

  private static ElType dataOf(String variant) {
    return variant.equals("fx8") ? ElType.MLI_EL_FX_8 : ElType.MLI_EL_FX_16;
  }

  private static ElType weightsOf(String variant) {
    return variant.equals("fx16") ? ElType.MLI_EL_FX_16 : ElType.MLI_EL_FX_8;
  }

  private static List<Integer> numbers(JsonElement array) {
    List<Integer> numbers = new ArrayList<>();
    array.getAsJsonArray().forEach(number -> numbers.add(number.getAsInt()));
    return numbers;
  }

  private static int[] array(List<Integer> numbers) {
    return numbers.stream().mapToInt(Integer::intValue).toArray();
  }

  private static MliTensor fixed(ElType type, List<Integer> data, int fracBits, int... shape) {
    if (type == ElType.MLI_EL_FX_8) {
      byte[] elements = new byte[data.size()];
      IntStream.range(0, elements.length).forEach(i -> elements[i] = data.get(i).byteValue());
      return MliTensor.fx(elements, fracBits, shape);
    }
    short[] elements = new short[data.size()];
    IntStream.range(0, elements.length).forEach(i -> elements[i] = data.get(i).shortValue());
    return MliTensor.fx(elements, fracBits, shape);
  }

  /** Returns a tensor of a record; runs of equal values may be run-length coded. */
  private static MliTensor tensor(JsonObject reference, String field, ElType type) {
    JsonObject record = reference.getAsJsonObject(field);
    List<Integer> data = new ArrayList<>();
    if (record.has("data")) {
      data.addAll(numbers(record.get("data")));
    } else {
      for (JsonElement run : record.getAsJsonArray("data_rle")) {
        List<Integer> pair = numbers(run);
        data.addAll(java.util.Collections.nCopies(pair.get(1), pair.get(0)));
      }
    }
    int[] shape = array(numbers(record.get("shape")));
    return fixed(type, data, record.get("frac_bits").getAsInt(), shape);
  }

  private static List<Integer> elements(MliTensor tensor) {
    List<Integer> elements = new ArrayList<>();
    if (tensor.elType() == ElType.MLI_EL_FX_8) {
      for (byte element : tensor.bytes()) {
        elements.add((int) element);
      }
    } else {
      for (short element : tensor.shorts()) {
        elements.add((int) element);
      }
    }
    return elements;
  }

  /** Returns what a case has of a field, rounded up where that differs. */
  private static List<Integer> expected(
      JsonObject reference, JsonElement data, String up, Rounding rounding) {
    boolean differs = rounding == Rounding.ROUNDING_UP && reference.has(up);
    return numbers(differs ? reference.get(up) : data);
  }

  private static void check(JsonObject reference, String field, MliTensor out, Rounding rounding) {
    JsonObject record = reference.getAsJsonObject(field);
    assertEquals(numbers(record.get("shape")), out.shape());
    assertEquals(record.get("frac_bits").getAsInt(), out.fracBits());
    assertEquals(
        expected(reference, record.get("data"), "out_data_round_up", rounding), elements(out));
  }

  private static RnnCellCfg configuration(JsonObject reference) {
    String mode = reference.get("mode").getAsString().toUpperCase(Locale.ROOT);
    String act = reference.get("act").getAsString().toUpperCase(Locale.ROOT);
    return RnnCellCfg.newBuilder()
        .setMode(RnnMode.valueOf("RNN_" + mode))
        .setAct(RnnOutActivation.valueOf("RNN_ACT_" + act))
        .build();
  }

  private static boolean isDense(JsonObject reference) {
    JsonObject weights = reference.getAsJsonObject("weights");
    if (!weights.has("mem_stride")) {
      return true;
    }
    List<Integer> strides = numbers(weights.get("mem_stride"));
    int pitch = strides.isEmpty() ? 0 : strides.get(0);
    return pitch == 0 || pitch == numbers(weights.get("shape")).get(1);
  }

  private static List<JsonObject> cases(JsonObject table) {
    List<JsonObject> cases = new ArrayList<>();
    table.getAsJsonArray("cases").forEach(each -> cases.add(each.getAsJsonObject()));
    return cases;
  }

  /** Fully connected layers have the reference's values, shape and fractional bits. */
  @ParameterizedTest
  @ValueSource(strings = {"fx8", "fx16", "fx8w16d"})
  void fullyConnected(String variant) throws IOException {
    ElType data = dataOf(variant);
    ElType weightType = weightsOf(variant);
    List<JsonObject> dense =
        cases(table("v1_fully_connected_" + variant)).stream()
            .filter(MliGoldenTest::isDense)
            .toList();
    assertTrue(dense.size() >= 40);
    for (Rounding rounding : List.of(Rounding.ROUNDING_CONVERGENT, Rounding.ROUNDING_UP)) {
      Mli library = library(rounding);
      for (JsonObject each : dense) {
        MliTensor in = tensor(each, "in", data);
        MliTensor weights = tensor(each, "weights", weightType);
        MliTensor bias = tensor(each, "bias", weightType);
        int rows = weights.shape().get(0);
        MliTensor out = MliTensor.empty(rows, data, each.get("out_frac_bits").getAsInt());
        switch (variant) {
          case "fx8" -> library.krnFullyConnectedFx8(in, weights, bias, out);
          case "fx16" -> library.krnFullyConnectedFx16(in, weights, bias, out);
          default -> library.krnFullyConnectedFx8w16d(in, weights, bias, out);
        }
        check(each, "out", out, rounding);
      }
    }
  }

  /** Basic RNN cells have the reference's values, shape and fractional bits. */
  @ParameterizedTest
  @ValueSource(strings = {"fx8", "fx16", "fx8w16d"})
  void basicRnn(String variant) throws IOException {
    ElType data = dataOf(variant);
    List<JsonObject> cases = cases(table("v1_basic_rnn_" + variant));
    assertTrue(cases.size() >= 75);
    for (Rounding rounding : List.of(Rounding.ROUNDING_CONVERGENT, Rounding.ROUNDING_UP)) {
      Mli library = library(rounding);
      for (JsonObject each : cases) {
        MliTensor in = tensor(each, "in", data);
        MliTensor before = tensor(each, "prev_out", data);
        MliTensor weights = tensor(each, "weights", weightsOf(variant));
        MliTensor bias = tensor(each, "bias", weightsOf(variant));
        RnnCellCfg cfg = configuration(each);
        int size = numbers(each.getAsJsonObject("out").get("data")).size();
        int bits = each.get("out_frac_bits_before").getAsInt();
        MliTensor out = MliTensor.empty(size, data, bits);
        switch (variant) {
          case "fx8" -> library.krnBasicRnnCellFx8(in, before, weights, bias, cfg, null, out);
          case "fx16" -> library.krnBasicRnnCellFx16(in, before, weights, bias, cfg, null, out);
          default -> library.krnBasicRnnCellFx8w16d(in, before, weights, bias, cfg, null, out);
        }
        check(each, "out", out, rounding);
      }
    }
  }

  /** LSTM cells have the reference's output, cell and intermediate results. */
  @ParameterizedTest
  @ValueSource(strings = {"fx8", "fx16", "fx8w16d"})
  void lstm(String variant) throws IOException {
    ElType data = dataOf(variant);
    List<JsonObject> cases = cases(table("v1_lstm_" + variant));
    assertTrue(cases.size() >= 77);
    for (Rounding rounding : List.of(Rounding.ROUNDING_CONVERGENT, Rounding.ROUNDING_UP)) {
      Mli library = library(rounding);
      for (JsonObject each : cases) {
        MliTensor in = tensor(each, "in", data);
        MliTensor before = tensor(each, "prev_out", data);
        MliTensor weights = tensor(each, "weights", weightsOf(variant));
        MliTensor bias = tensor(each, "bias", weightsOf(variant));
        MliTensor cell = tensor(each, "cell", data);
        RnnCellCfg cfg = configuration(each);
        MliTensor ir = MliTensor.empty(4 * elements(cell).size(), data, 0);
        MliTensor out =
            switch (variant) {
              case "fx8" -> library.krnLstmCellFx8(in, before, weights, bias, cfg, ir, cell, null);
              case "fx16" ->
                  library.krnLstmCellFx16(in, before, weights, bias, cfg, ir, cell, null);
              default ->
                  library.krnLstmCellFx8w16d(in, before, weights, bias, cfg, ir, cell, null);
            };
        check(each, "out", out, rounding);
        assertEquals(
            expected(each, each.get("cell_data_after"), "cell_data_after_round_up", rounding),
            elements(cell));
        if (rounding == Rounding.ROUNDING_CONVERGENT) {
          check(each, "ir_after", ir, rounding);
        }
      }
    }
  }

  /** Tanh and sigmoid have the reference's values for every input of the files. */
  @ParameterizedTest
  @ValueSource(strings = {"tanh_fx8", "tanh_fx16", "sigm_fx8", "sigm_fx16"})
  void activations(String name) throws IOException {
    JsonObject table = table("v1_" + name);
    ElType type = dataOf(name.substring("tanh_".length()));
    List<Integer> inputs =
        table.has("in_data")
            ? numbers(table.get("in_data"))
            : IntStream.range(-128, 128).boxed().toList();
    for (Rounding rounding : List.of(Rounding.ROUNDING_CONVERGENT, Rounding.ROUNDING_UP)) {
      Mli library = library(rounding);
      for (JsonObject each : cases(table)) {
        MliTensor in = fixed(type, inputs, each.get("in_frac_bits").getAsInt());
        MliTensor out =
            switch (name) {
              case "tanh_fx8" -> library.krnTanhFx8(in, null);
              case "tanh_fx16" -> library.krnTanhFx16(in, null);
              case "sigm_fx8" -> library.krnSigmFx8(in, null);
              default -> library.krnSigmFx16(in, null);
            };
        assertEquals(expected(each, each.get("out"), "out_round_up", rounding), elements(out));
        assertEquals(each.get("out_frac_bits").getAsInt(), out.fracBits());
      }
    }
  }
}
