// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

/**
 * The server of the session is gone, or the connection to it broke: connect again. Its tensors are
 * lost with the server. gRPC or a proxy chose the code.
 */
public final class SessionLostException extends TransportException {
  private static final long serialVersionUID = 1L;

  SessionLostException(String code, String details, Throwable cause) {
    super(
        code,
        "the server of this session is gone: " + details,
        "Connect again: what the session held is lost with its server.",
        cause);
  }

  @Override
  TransportException renumbered(int before) {
    return this;
  }
}
