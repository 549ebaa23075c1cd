// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import java.util.HashMap;
import java.util.Map;
import java.util.OptionalInt;

/** The machine would have ended the program: operands contradict each other, or lack storage. */
public final class ProgramCheckException extends NnpaException {
  private static final long serialVersionUID = 1L;

  private final String details;
  private final HashMap<String, String> metadata;

  ProgramCheckException(String details, Map<String, String> metadata, Throwable cause) {
    super(TransportException.asSentence(details) + hint(metadata), cause);
    this.details = details;
    this.metadata = new HashMap<>(metadata);
  }

  private static String hint(Map<String, String> metadata) {
    String status = metadata.getOrDefault("precheck_status", "");
    boolean unallocated =
        "pipeline_c11".equals(metadata.get("constraint"))
            && "0 bytes".equals(metadata.get("value"));
    return (status.isEmpty()
            ? ""
            : " With precheck the status would have been "
                + Statuses.name(Integer.parseInt(status))
                + ".")
        + (unallocated ? " The ztensor has no buffer: it was freed, or never allocated." : "");
  }

  /** Returns "data" (SIGILL), "access" (SIGSEGV), "operation" (SIGILL) or, of MLI, "assertion". */
  public String kind() {
    return metadata.getOrDefault("kind", "");
  }

  /** Returns the C function without its prefix. */
  public String op() {
    return metadata.getOrDefault("operation", "");
  }

  /** Returns the faulty field. */
  public String field() {
    return metadata.getOrDefault("field", "");
  }

  /** Returns the value of the field. */
  public String value() {
    return metadata.getOrDefault("value", "");
  }

  /** Returns the accepted values. */
  public String limit() {
    return metadata.getOrDefault("limit", "");
  }

  /** Returns the constraint's stable name. */
  public String constraint() {
    return metadata.getOrDefault("constraint", "");
  }

  /** Returns the status that precheck would have given, if any. */
  public OptionalInt precheckStatus() {
    return number("precheck_status");
  }

  /** Returns the call's place in a list, 0-based: operations before it have taken effect. */
  public OptionalInt operationIndex() {
    return number("operation_index");
  }

  private OptionalInt number(String key) {
    String text = metadata.getOrDefault(key, "");
    return text.isEmpty() ? OptionalInt.empty() : OptionalInt.of(Integer.parseInt(text));
  }

  @Override
  ProgramCheckException renumbered(int before) {
    return new ProgramCheckException(
        TransportException.shift(details, before),
        TransportException.shift(metadata, before),
        getCause());
  }
}
