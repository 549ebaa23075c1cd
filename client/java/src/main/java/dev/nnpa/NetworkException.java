// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.network.v1.AiError;

/** The client API of a hosted network refuses, by ST's type and code. */
public final class NetworkException extends NnpaException {
  private static final long serialVersionUID = 1L;

  private final AiError error;

  NetworkException(AiError error) {
    super(
        String.format(
            "%s / %s (0x%02X, 0x%02X): %s",
            error.getType(),
            error.getCode(),
            error.getTypeValue(),
            error.getCodeValue(),
            error.getText()),
        null);
    this.error = error;
  }

  /** Returns type, code and text. */
  public AiError error() {
    return error;
  }
}
