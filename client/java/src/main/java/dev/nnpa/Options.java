// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.FieldMask;
import com.google.protobuf.TextFormat;
import dev.nnpa.zdnn.v1.Accumulate;
import dev.nnpa.zdnn.v1.GetMachineRequest;
import dev.nnpa.zdnn.v1.LogLevel;
import dev.nnpa.zdnn.v1.MachineSpec;
import dev.nnpa.zdnn.v1.Numerics;
import dev.nnpa.zdnn.v1.ProgramCheckAction;
import java.time.Duration;
import java.util.LinkedHashSet;
import java.util.Set;

/**
 * Options of a new session, or changes by {@link Session#update}; an option that is not set keeps
 * its default, or its value.
 */
public final class Options {
  private final dev.nnpa.zdnn.v1.Session.Builder session = dev.nnpa.zdnn.v1.Session.newBuilder();
  private final Set<String> fields = new LinkedHashSet<>();
  private String machine = "";
  private Duration maxWait;

  private Options set(String field, Object value) {
    session.setField(session.getDescriptorForType().findFieldByName(field), value);
    fields.add(field);
    return this;
  }

  /** Chooses a machine by name or alias, for example "telum1" or "z16". Default: telum2. */
  public Options machine(String name) {
    machine = name;
    fields.add("machine_spec");
    return this;
  }

  /** Describes a custom machine: a model, and changes to it. */
  public Options machine(MachineSpec spec) {
    machine = "";
    return set("machine_spec", spec);
  }

  /** Chooses zDNN's version, for example "1.0.0", for a session's life. Default "1.2.0". */
  public Options library(String version) {
    return set("library_version", version);
  }

  /** Verifies operands first; without, contradictions are a {@link ProgramCheckException}. */
  public Options precheck(boolean on) {
    return set("precheck", on);
  }

  /** Chooses the status that triggers a diagnosis: ZDNN_STATUS_DIAG. */
  public Options statusDiag(int status) {
    return set("status_diag", status);
  }

  /** Chooses the effect of a program check. */
  public Options programCheck(ProgramCheckAction action) {
    return set("program_check_action", action.getValueDescriptor());
  }

  /** Chooses which log lines come back: ZDNN_LOGLEVEL. */
  public Options logLevel(LogLevel level) {
    return set("log_level", level.getValueDescriptor());
  }

  /** Chooses which modules log: ZDNN_LOGMODULE. */
  public Options logModule(String modules) {
    return set("log_module", modules);
  }

  /** Chooses how results are computed. */
  public Options numerics(Numerics numerics) {
    return set("numerics", numerics.getValueDescriptor());
  }

  /** Chooses the seed of NUMERICS_JITTER. */
  public Options jitterSeed(long seed) {
    return set("jitter_seed", seed);
  }

  /** Chooses how sums of products are computed. */
  public Options accumulate(Accumulate accumulate) {
    return set("accumulate", accumulate.getValueDescriptor());
  }

  /**
   * Sets how long opening a session retries at a full server. Default: the environment's {@code
   * ZDNN_WAIT}, seconds, else 0.
   */
  public Options maxWait(Duration limit) {
    if (limit.isNegative()) {
      throw new IllegalArgumentException("maxWait: " + limit + ", expected 0 or more");
    }
    maxWait = limit;
    return this;
  }

  Duration maxWait() {
    return Waiting.limit(maxWait);
  }

  /** Returns the message; a machine's name is looked up at the server. */
  dev.nnpa.zdnn.v1.Session.Builder message(Transport transport) {
    // The trace that sessions join, as "nnpa trace record" sets it.
    String trace = System.getenv().getOrDefault("ZDNN_TRACE", "");
    dev.nnpa.zdnn.v1.Session.Builder message = session.clone().setTrace(trace);
    if (!machine.isEmpty()) {
      var request = GetMachineRequest.newBuilder().setName("machines/" + machine).build();
      message.setMachineSpec(
          MachineSpec.newBuilder().setModel(transport.getMachine(request).getModel()));
    }
    return message;
  }

  @Override
  public String toString() {
    String name = machine.isEmpty() ? "" : "machine: " + machine + " ";
    String wait = maxWait == null ? "" : "maxWait: " + maxWait + " ";
    String others = TextFormat.printer().printToString(session).replaceAll("\\s+", " ");
    return "Options[" + (name + wait + others).strip() + "]";
  }

  FieldMask mask() {
    return FieldMask.newBuilder().addAllPaths(fields).build();
  }
}
