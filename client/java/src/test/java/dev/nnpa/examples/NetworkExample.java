// SPDX-License-Identifier: Apache-2.0
package dev.nnpa.examples;

import dev.nnpa.Descriptions;
import dev.nnpa.LoadOptions;
import dev.nnpa.Network;
import dev.nnpa.NetworkArray;
import dev.nnpa.Session;
import java.util.Map;

/** An ONNX model as a hosted network. */
public final class NetworkExample {
  private NetworkExample() {}

  /** Feeds the one input of a model, and returns its one output, both FP32. */
  public static float[] infer(String target, byte[] model, float... input) {
    try (Session session = Session.connect(target);
        Network net = session.load(model, new LoadOptions())) {
      System.out.println(net);
      System.out.println(Descriptions.of(net.report()));
      String name = net.inputs().get(0).getName();
      Map<String, NetworkArray> outputs = net.run(Map.of(name, NetworkArray.of(input)));
      return outputs.get(net.outputs().get(0).getName()).floats();
    }
  }
}
