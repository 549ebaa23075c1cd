// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.mli.v1.KernelResult;
import dev.nnpa.mli.v1.MliStatus;
import dev.nnpa.mli.v1.Refusal;
import java.util.OptionalInt;

/** A status of embARC MLI that is not MLI_STATUS_OK; nothing was written. */
public final class MliException extends NnpaException {
  private static final long serialVersionUID = 1L;

  private final String kernel;
  private final KernelResult result;
  private final int kernelIndex;

  MliException(String kernel, KernelResult result, int kernelIndex) {
    super(sentence(kernel, result, kernelIndex), null);
    this.kernel = kernel;
    this.result = result;
    this.kernelIndex = kernelIndex;
  }

  /** Returns the function without mli_. */
  public String kernel() {
    return kernel;
  }

  /** Returns the status. */
  public MliStatus status() {
    return result.getMliStatus();
  }

  /** Returns field, value, limit and constraint. */
  public Refusal refusal() {
    return result.getRefusal();
  }

  /**
   * Returns the call's index in a batch, from 0: earlier calls have written their outputs, later
   * calls have not run. Empty outside of a batch.
   */
  public OptionalInt kernelIndex() {
    return kernelIndex < 0 ? OptionalInt.empty() : OptionalInt.of(kernelIndex);
  }

  private static String sentence(String kernel, KernelResult result, int kernelIndex) {
    String text = result.getRefusal().getText();
    String place = kernelIndex < 0 ? "" : "kernel " + kernelIndex + ", ";
    return place + "mli_" + kernel + ": " + (text.isEmpty() ? result.getMliStatus() : text);
  }
}
