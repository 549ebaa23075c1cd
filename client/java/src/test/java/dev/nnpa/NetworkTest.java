// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.nnpa.examples.NetworkExample;
import dev.nnpa.network.v1.AiErrorCode;
import dev.nnpa.network.v1.NetworkReport;
import dev.nnpa.network.v1.Overflow;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Hosted networks: loaded, run over arrays by name, mistakes refused before the wire. */
final class NetworkTest {
  private static final Path ROOT = Path.of("../..");
  static final Path DIGITS =
      ROOT.resolve("client/python/nnpa_client/networks/digits_cnn.onnx");
  private static final float[] X = {1, 2, 3, 4, 5, -6};
  private static final float[] DOUBLED = {2, 4, 6, 8, 10, -12};

  private static Session connect() {
    return Session.connect(LocalServer.shared().unix());
  }

  /** Returns a model that adds its 2x3 input to itself. */
  static byte[] model() throws IOException {
    try (InputStream model = NetworkTest.class.getResourceAsStream("/double.onnx")) {
      return model.readAllBytes();
    }
  }

  /** Returns the interpreter beside the server's command. */
  private static Path python() {
    String command = Optional.ofNullable(System.getenv("NNPA_SERVER")).orElse("nnpa-server");
    return Stream.concat(
            Stream.of(Path.of(command)),
            Stream.of(System.getenv("PATH").split(":")).map(folder -> Path.of(folder, command)))
        .filter(Files::isExecutable)
        .findFirst()
        .orElseThrow()
        .resolveSibling("python");
  }

  /** Returns what a script prints that takes the shared server, the digits' model, and more. */
  static JsonObject printedByPython(String script, String... more) throws Exception {
    List<String> command = new ArrayList<>();
    command.add(python().toString());
    command.add(ROOT.resolve("tests/conformance").resolve(script).toString());
    command.addAll(List.of(LocalServer.shared().unix(), DIGITS.toString()));
    command.addAll(List.of(more));
    Process process =
        new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    return JsonParser.parseString(printed).getAsJsonObject();
  }

  /** Returns the words of the one output that the Python client gets. */
  private static List<String> wordsOfPython(String machine) throws Exception {
    JsonObject outputs = printedByPython("hosted_outputs.py", machine);
    JsonArray words = outputs.getAsJsonObject("logits").getAsJsonArray("words");
    List<String> texts = new ArrayList<>();
    words.forEach(word -> texts.add(word.getAsString()));
    return texts;
  }

  /** Outputs are those of the Python client, bit for bit, on both Telums. */
  @ParameterizedTest
  @ValueSource(strings = {"telum1", "telum2"})
  void bitsEqualPythons(String machine) throws Exception {
    float[] image = new float[2 * 8 * 8];
    for (int i = 0; i < image.length; i++) {
      image[i] = (i * 7 % 23 - 11) / 32f;
    }
    Options options = new Options().machine(machine);
    try (Session session = Session.connect(LocalServer.shared().unix(), options);
        Network net = session.load(DIGITS)) {
      NetworkArray logits = net.run(Map.of("image", NetworkArray.of(image))).get("logits");
      assertEquals(List.of(2L, 10L), logits.shape());
      List<String> words = new ArrayList<>();
      for (float number : logits.floats()) {
        words.add(String.format("%08X", Float.floatToRawIntBits(number)));
      }
      assertEquals(wordsOfPython(machine), words);
    }
  }

  /** The example's model, which adds its 2x3 input to itself, doubles it. */
  @Test
  void example() throws IOException {
    assertArrayEquals(DOUBLED, NetworkExample.infer(LocalServer.shared().unix(), model(), X));
  }

  /** A model that is published is loaded by its name, and is the same model. */
  @Test
  void published() throws IOException {
    String name = "double-java-" + ProcessHandle.current().pid();
    try (Session session = connect();
        Session second = connect();
        Network first = session.load(model(), new LoadOptions().publishAs(name));
        Network net = second.loadPublished(name, new LoadOptions().cName("published"))) {
      assertEquals(first.modelSignature(), net.modelSignature());
      assertEquals("published", net.cName());
      NetworkArray y = net.run(Map.of("x", NetworkArray.of(X, 2, 3))).get("y");
      assertArrayEquals(DOUBLED, y.floats());
      assertEquals(List.of(2L, 3L), y.shape());
    }
  }

  /** A network and its report say what they are in one line. */
  @Test
  void descriptions() throws IOException {
    try (Session session = connect();
        Network net = session.load(model(), new LoadOptions().cName("twice"))) {
      assertEquals(
          "Network[twice on telum2: x float32[2, 3] -> y float32[2, 3]]", net.toString());
      NetworkReport report = net.report();
      assertEquals(
          "NetworkReport[twice on telum2: 1 nodes on the accelerator, 0 on the host, 0 folded]",
          Descriptions.of(report));
      assertEquals(List.of("add"), report.getNodes(0).getFunctionsList());
    }
  }

  /** Infer counts calls and warns of nothing; run warns once of a violation. */
  @Test
  void violations() throws IOException {
    List<ZdnnWarning> warnings = new ArrayList<>();
    LoadOptions options = new LoadOptions().overflow(Overflow.OVERFLOW_NINF);
    try (Session session = connect();
        Network net = session.load(model(), options)) {
      session.onWarning(warnings::add);
      Inference inference = net.infer(Map.of("x", NetworkArray.of(X)));
      assertEquals(1L, inference.calls().get("add"));
      assertEquals(List.of(), inference.violations());
      Map<String, NetworkArray> large =
          Map.of("x", NetworkArray.of(new float[] {8e9f, 8e9f, 8e9f, 8e9f, 8e9f, 8e9f}));
      assertTrue(net.infer(large).violations().size() > 0);
      assertEquals(List.of(), warnings);
      net.run(large);
      assertEquals(1, warnings.size());
      assertTrue(warnings.get(0).message().startsWith("zdnn_add (node "), warnings.toString());
    }
  }

  static void refuses(String says, Executable call) {
    assertEquals(says, assertThrows(RuntimeException.class, call).getMessage());
  }

  /** A wrong name, type or shape is refused before the wire, with what is expected. */
  @Test
  void mistakes() throws IOException {
    NetworkArray x = NetworkArray.of(X);
    Map<String, Map<String, NetworkArray>> mistakes = new LinkedHashMap<>();
    mistakes.put("inputs: got z, expected x", Map.of("x", x, "z", x));
    mistakes.put("input x is missing, expected x float32[2, 3]", Map.of());
    mistakes.put(
        "input x: got double[], expected float32 (float[])",
        Map.of("x", NetworkArray.of(new double[6])));
    mistakes.put(
        "input x: got 5 elements, expected [2, 3]", Map.of("x", NetworkArray.of(new float[5])));
    mistakes.put(
        "input x: got float32 [3, 2], expected float32 [2, 3]",
        Map.of("x", NetworkArray.of(X, 3, 2)));
    mistakes.put(
        "input x: 5 elements do not fill shape [2, 3]",
        Map.of("x", NetworkArray.of(new float[5], 2, 3)));
    try (Session session = connect();
        Network net = session.load(model(), new LoadOptions())) {
      mistakes.forEach((says, inputs) -> refuses(says, () -> net.run(inputs)));
    }
    refuses("data: null, expected an array such as float[]", () -> NetworkArray.of(null));
    refuses("data: Object, expected an array such as float[]", () -> NetworkArray.of(new Object()));
  }

  /** Elements that do not fill the one free dim of an input are refused before the wire. */
  @Test
  void freeDim() throws IOException {
    NetworkArray image = NetworkArray.of(new float[65]);
    try (Session session = connect();
        Network net = session.load(DIGITS)) {
      refuses(
          "input image: got 65 elements, expected [-1, 1, 8, 8]",
          () -> net.run(Map.of("image", image)));
    }
  }

  /** A network that is closed says so; it may be closed again, and after its session. */
  @Test
  void closed() throws IOException {
    Session session = connect();
    Network net = session.load(model(), new LoadOptions().cName("gone"));
    Network late = session.load(model(), new LoadOptions());
    net.close();
    net.close();
    String says = "network gone: is closed, session.load loads it again";
    refuses(says, () -> net.run(Map.of("x", NetworkArray.of(X))));
    refuses(says, net::report);
    session.close();
    late.close();
  }

  /** What is no model is refused, a refusal of the client API has ST's names and numbers. */
  @Test
  void refusals() throws IOException {
    LoadOptions twice = new LoadOptions().cName("twice");
    try (Session session = connect();
        Network net = session.load(model(), twice)) {
      TransportException none =
          assertThrows(
              TransportException.class,
              () -> session.load(new byte[] {1, 2, 3}, new LoadOptions()));
      assertEquals("MODEL_INVALID", none.reason());
      NetworkException refused =
          assertThrows(NetworkException.class, () -> session.load(model(), twice));
      assertEquals(AiErrorCode.AI_ERROR_CODE_IN_USE, refused.error().getCode());
      String says = "AI_ERROR_CREATE_FAILED / AI_ERROR_CODE_IN_USE (0x33, 0x40): ";
      assertTrue(refused.getMessage().startsWith(says), refused.getMessage());
      assertThrows(NoSuchFileException.class, () -> session.load(Path.of("no.onnx")));
      assertEquals("twice", net.cName());
    }
  }
}
