// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalDouble;
import org.junit.jupiter.api.Test;

/** How far a hosted network is from FP32, and where it fails: as the Python client says. */
final class AccuracyTest {
  private static final int ROWS = 20;

  private static Session connect() {
    return Session.connect(LocalServer.shared().unix());
  }

  private static Accuracy ofDigits(Network net) {
    float[] image = new float[ROWS * 8 * 8];
    for (int i = 0; i < image.length; i++) {
      image[i] = (i * 7 % 23 - 11) / 32f;
    }
    long[] labels = new long[ROWS];
    for (int row = 0; row < ROWS; row++) {
      labels[row] = row % 10;
    }
    AccuracyOptions options = new AccuracyOptions().labels(labels).batchRows(8).nodeRows(4);
    options.int8(true).maxDrop(0.5).html(true).about(Map.of("data", "made up"));
    return net.measureAccuracy(Map.of("image", NetworkArray.of(image)), options);
  }

  private static OptionalDouble number(JsonElement figure) {
    return figure.isJsonNull() ? OptionalDouble.empty() : OptionalDouble.of(figure.getAsDouble());
  }

  private static List<Accuracy.Run> tableOf(JsonObject python) {
    List<Accuracy.Run> table = new ArrayList<>();
    for (JsonElement element : python.getAsJsonArray("table")) {
      JsonObject run = element.getAsJsonObject();
      table.add(
          new Accuracy.Run(
              run.get("run").getAsString(),
              number(run.get("accuracy")),
              number(run.get("top5")),
              run.get("drop").getAsDouble(),
              run.get("changed").getAsLong(),
              number(run.get("l2r"))));
    }
    return table;
  }

  /** Figures, the report, and what a probe finds are those of the Python client. */
  @Test
  void equalsPythons() throws Exception {
    JsonObject python = NetworkTest.printedByPython("hosted_accuracy.py");
    try (Session session = connect();
        Network net = session.load(NetworkTest.DIGITS)) {
      Accuracy accuracy = ofDigits(net);
      assertEquals(python.get("verdict").getAsString(), accuracy.toString());
      assertEquals(python.get("drop").getAsDouble(), accuracy.drop());
      assertEquals(tableOf(python), accuracy.table());
      JsonObject report = JsonParser.parseString(accuracy.json()).getAsJsonObject();
      JsonObject about = report.remove("about").getAsJsonObject();
      assertEquals("made up", about.get("data").getAsString());
      report.add("about", new JsonObject());
      assertEquals(python.get("report"), report);
      assertTrue(accuracy.text().startsWith(accuracy.verdict()), accuracy.text());
      assertTrue(accuracy.html().startsWith("<!DOCTYPE html>"), accuracy.html());
      JsonArray probe = python.getAsJsonArray("probe");
      List<ProbeRun> runs = net.probe(List.of(1, 2), List.of("telum1"));
      assertEquals(ProbeRun.listOf(probe.toString()), runs);
      assertEquals("zeros", runs.get(0).inputs());
    }
  }

  /** Rows without labels may have one axis more than an input; batches change no figure. */
  @Test
  void runs() throws IOException {
    float[] data = new float[5 * 2 * 3];
    for (int i = 0; i < data.length; i++) {
      data[i] = i / 3f;
    }
    AccuracyOptions options = new AccuracyOptions().machines(List.of("z16"));
    try (Session session = connect();
        Network net = session.load(NetworkTest.model(), new LoadOptions())) {
      Accuracy whole = net.measureAccuracy(Map.of("x", NetworkArray.of(data)), options);
      Map<String, NetworkArray> shaped = Map.of("x", NetworkArray.of(data, 5, 2, 3));
      Accuracy batches = net.measureAccuracy(shaped, options.batchRows(2));
      assertEquals(whole.table(), batches.table());
      Accuracy.Run run = whole.table().get(0);
      assertEquals("telum1", run.name());
      assertFalse(run.accuracy().isPresent());
      assertTrue(run.l2r().orElseThrow() > 0);
      assertEquals(1, whole.table().size());
      assertEquals(0, whole.drop());
      assertTrue(whole.verdict().contains("over 5 rows, on Telum I"), whole.verdict());
      assertEquals("", whole.html());
    }
  }

  /** What does not fit is refused before the wire, by its name. */
  @Test
  void mistakes() throws IOException {
    AccuracyOptions none = new AccuracyOptions();
    NetworkTest.refuses(
        "batchRows: got 5000, expected 1 to 4096", () -> new AccuracyOptions().batchRows(5000));
    try (Session session = connect();
        Network net = session.load(NetworkTest.model(), new LoadOptions().cName("double"))) {
      Map<String, NetworkArray> mistakes =
          Map.of(
              "rows: got none, expected at least 1", NetworkArray.of(new float[0]),
              "input x: got 7 elements, expected [-1, 2, 3]", NetworkArray.of(new float[7]),
              "input x: got float32 [2, 3], expected float32 [-1, 2, 3]",
              NetworkArray.of(new float[6], 2, 3),
              "input x: got double[], expected float32 (float[])",
              NetworkArray.of(new double[6]));
      mistakes.forEach(
          (says, x) ->
              NetworkTest.refuses(says, () -> net.measureAccuracy(Map.of("x", x), none)));
      NetworkTest.refuses(
          "input x is missing, expected x float32[2, 3]",
          () -> net.measureAccuracy(Map.of(), none));
      Map<String, NetworkArray> two = Map.of("x", NetworkArray.of(new float[12]));
      NetworkTest.refuses(
          "labels: got 3 for 2 rows, expected as many for each",
          () -> net.measureAccuracy(two, new AccuracyOptions().labels(0, 0, 0)));
      TransportException machine =
          assertThrows(
              TransportException.class, () -> net.probe(List.of(), List.of("z15")));
      assertEquals("FIELD_INVALID", machine.reason());
    }
  }

  /** A network that is closed says so. */
  @Test
  void closed() throws IOException {
    try (Session session = connect()) {
      Network net = session.load(NetworkTest.model(), new LoadOptions().cName("double"));
      net.close();
      String gone = "network double: is closed, session.load loads it again";
      NetworkTest.refuses(
          gone, () -> net.measureAccuracy(Map.of(), new AccuracyOptions()));
      NetworkTest.refuses(gone, () -> net.probe(List.of(), List.of()));
    }
  }
}
