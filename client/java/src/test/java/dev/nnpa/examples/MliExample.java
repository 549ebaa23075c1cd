// SPDX-License-Identifier: Apache-2.0
package dev.nnpa.examples;

import dev.nnpa.Mli;
import dev.nnpa.MliTensor;
import dev.nnpa.Session;
import dev.nnpa.mli.v1.ElType;

/** A layer of embARC MLI and its tanh, in one request. */
public final class MliExample {
  private MliExample() {}

  /** Returns tanh of weights * in + bias: 16-bit data, 8-bit weights of two neurons. */
  public static double[] layer(String target, double[] in, double[] weights, double[] bias) {
    try (Session session = Session.connect(target)) {
      Mli library = new Mli(session);
      MliTensor x = MliTensor.quantise(in, ElType.MLI_EL_FX_16, 14);
      MliTensor matrix =
          MliTensor.quantise(weights, ElType.MLI_EL_FX_8, 6, bias.length, in.length);
      MliTensor start = MliTensor.quantise(bias, ElType.MLI_EL_FX_8, 6);
      MliTensor sums = MliTensor.empty(bias.length, ElType.MLI_EL_FX_16, 12);
      try (Mli.Batch batch = library.batch()) {
        library.krnFullyConnectedFx8w16d(x, matrix, start, sums);
        MliTensor curve = library.krnTanhFx16(sums, null);
        batch.run();
        return curve.dequantise();
      }
    }
  }
}
