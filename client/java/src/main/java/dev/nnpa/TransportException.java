// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.regex.Pattern;

/** The call did not reach the accelerator, or its answer did not come back. */
public sealed class TransportException extends NnpaException permits SessionLostException {
  private static final long serialVersionUID = 1L;
  private static final Pattern PLACE = Pattern.compile("operations\\[(\\d+)]");

  private final String code;
  private final String details;
  private final String reason;
  private final HashMap<String, String> metadata;
  private final String advice;
  private Duration retryDelay = Duration.ZERO;

  TransportException(
      String code, String details, String reason, Map<String, String> metadata, Throwable cause) {
    this(code, details, reason, metadata, Texts.advice(code, reason), cause);
  }

  /** Makes an exception without a reason of the server, with this advice. */
  TransportException(String code, String details, String advice, Throwable cause) {
    this(code, details, "", Map.of(), advice, cause);
  }

  private TransportException(
      String code,
      String details,
      String reason,
      Map<String, String> metadata,
      String advice,
      Throwable cause) {
    super(
        code + (reason.isEmpty() ? "" : " / " + reason) + ": " + asSentence(details) + " " + advice,
        cause);
    this.code = code;
    this.details = details;
    this.reason = reason;
    this.metadata = new HashMap<>(metadata);
    this.advice = advice;
  }

  /** Returns a text with a full stop at its end. */
  static String asSentence(String text) {
    return text.endsWith(".") || text.endsWith("!") || text.endsWith("?") ? text : text + ".";
  }

  /** Sets the delay after which the server asks to try again. */
  TransportException retryAfter(Duration delay) {
    retryDelay = delay;
    return this;
  }

  /** Returns the delay after which the server asks to try again; zero if it does not ask. */
  public Duration retryDelay() {
    return retryDelay;
  }

  /** Returns the gRPC code's name, for example "UNAVAILABLE". */
  public String code() {
    return code;
  }

  /** Returns the name of the {@code ErrorReason} without its prefix, "" when gRPC itself failed. */
  public String reason() {
    return reason;
  }

  /** Returns the values in the message: "field", "value", "limit", "operation_index", ... */
  public Map<String, String> metadata() {
    return Collections.unmodifiableMap(metadata);
  }

  /** Returns the remedy. */
  public String advice() {
    return advice;
  }

  @Override
  TransportException renumbered(int before) {
    return new TransportException(
        code, shift(details, before), reason, shift(metadata, before), getCause());
  }

  static String shift(String text, int before) {
    return PLACE
        .matcher(text)
        .replaceAll(match -> "operations[" + (Integer.parseInt(match.group(1)) - before) + "]");
  }

  static Map<String, String> shift(Map<String, String> metadata, int before) {
    Map<String, String> shifted = new HashMap<>(metadata);
    shifted.replaceAll((key, text) -> shift(text, before));
    shifted.computeIfPresent(
        "operation_index", (key, text) -> String.valueOf(Integer.parseInt(text) - before));
    return shifted;
  }
}
