// SPDX-License-Identifier: Apache-2.0
package dev.nnpa.testee;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.nnpa.NnpaException;
import dev.nnpa.Options;
import dev.nnpa.ProgramCheckException;
import dev.nnpa.Session;
import dev.nnpa.TransportException;
import dev.nnpa.UserArray;
import dev.nnpa.ZdnnException;
import dev.nnpa.ZdnnWarning;
import dev.nnpa.Ztensor;
import dev.nnpa.zdnn.v1.DataTypes;
import dev.nnpa.zdnn.v1.FloatRange;
import dev.nnpa.zdnn.v1.FpFlags;
import dev.nnpa.zdnn.v1.MachineSpec;
import dev.nnpa.zdnn.v1.RangeViolation;
import dev.nnpa.zdnn.v1.ViolatingElement;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;

/** A session, and the ztensors that a vector has named. */
final class Program {
  private static final Set<String> OUTPUTS =
      Set.of("output", "output_a", "output_b", "hn_output", "cf_output", "dest", "ztensor");
  private static final Set<String> MISALIGNED =
      Set.of("buffer_misaligned", "save_area_misaligned", "work_area_misaligned");

  private final Session session;
  private final Map<Long, Ztensor> named = new HashMap<>();
  private final List<ZdnnWarning> warnings = new ArrayList<>();

  private Program(Session session, JsonObject tensors) {
    this.session = session;
    session.onWarning(warnings::add);
    tensors
        .asMap()
        .forEach(
            (id, tensor) -> named.put(Long.parseLong(id), put(tensor.getAsJsonObject())));
  }

  /** Runs one vector in a session of its own, and writes into {@code answer}. */
  static void run(String target, JsonObject vector, JsonObject answer) {
    Options options =
        new Options()
            .machine(
                Locals.parsed(vector.getAsJsonObject("machine_spec"), MachineSpec.newBuilder())
                    .build())
            .library(vector.get("library").getAsString())
            .precheck(vector.get("precheck").getAsBoolean());
    for (JsonElement step : vector.getAsJsonArray("steps")) {
      JsonObject operation = step.getAsJsonObject().getAsJsonObject("operation");
      String shifted = operation == null ? null : first(operation.keySet(), true);
      if (shifted != null) {
        answer.addProperty("skipped", shifted + ": the SDK's buffers are the server's, on 4 KiB");
        return;
      }
    }
    try (Session session = Session.connect(target, options)) {
      Program program = new Program(session, vector.getAsJsonObject("tensors"));
      JsonArray steps = new JsonArray();
      vector
          .getAsJsonArray("steps")
          .forEach(step -> steps.add(program.step(step.getAsJsonObject())));
      answer.add("steps", steps);
    } catch (Verbs.Inexpressible error) {
      answer.addProperty("skipped", error.getMessage());
    }
  }

  private static String first(Set<String> names, boolean misaligned) {
    return names.stream()
        .filter(name -> MISALIGNED.contains(name) == misaligned)
        .findFirst()
        .orElse(null);
  }

  private Ztensor put(JsonObject line) {
    var structure =
        dev.nnpa.zdnn.v1.Ztensor.newBuilder()
            .setPreTransformedDesc(Locals.descriptor(line.getAsJsonObject("pre_transformed_desc")))
            .setTransformedDesc(Locals.descriptor(line.getAsJsonObject("transformed_desc")))
            .setBufferSize(line.get("buffer_size").getAsBigInteger().longValue())
            .setIsTransformed(line.get("is_transformed").getAsBoolean())
            .setRecScale(line.get("rec_scale").getAsFloat())
            .setOffset(line.get("offset").getAsFloat())
            .build();
    ByteBuffer sticks =
        line.has("memory") ? Words.littleEndian(line.get("memory").getAsString()) : null;
    return session.putZtensor(structure, sticks);
  }

  /** Makes one call, or moves the guest, and returns what can be observed. */
  private JsonObject step(JsonObject line) {
    JsonObject answer = new JsonObject();
    if (line.has("machine_spec")) {
      var spec = Locals.parsed(line.getAsJsonObject("machine_spec"), MachineSpec.newBuilder());
      session.update(new Options().machine(spec.build()));
      return answer;
    }
    JsonObject operation = line.getAsJsonObject("operation");
    String name = first(operation.keySet(), false);
    JsonObject fields = operation.getAsJsonObject(name);
    Map<String, Ztensor> operands = operands(fields);
    warnings.clear();
    try {
      Object returned = Verbs.call(session, name, fields, operands, data(line));
      returned(name, returned, fields, operands, answer);
    } catch (ZdnnException error) {
      refused(error, operands, answer);
    } catch (NnpaException error) {
      answer.addProperty(
          "error", error instanceof TransportException lost ? lost.reason() : check(error));
      return answer;
    }
    seen(name, operands, answer);
    return answer;
  }

  /** Tells the warnings, the outputs and the flags of a call that was answered. */
  private void seen(String name, Map<String, Ztensor> operands, JsonObject answer) {
    for (ZdnnWarning warning : warnings) {
      answer.addProperty("status", warning.status());
      answer.add("violation", violation(warning.violation()));
    }
    answer.add("outputs", outputs(operands));
    Ztensor flagged = operands.getOrDefault("ztensor", operands.get("dest"));
    if (flagged != null && (name.startsWith("transform_") || name.startsWith("reshape_"))) {
      answer.add("fp_flags", flags(flagged.flags()));
    }
  }

  private static String check(NnpaException error) {
    if (error instanceof ProgramCheckException) {
      return "PROGRAM_CHECK";
    }
    throw error;
  }

  private Map<String, Ztensor> operands(JsonObject fields) {
    Map<String, Ztensor> operands = new LinkedHashMap<>();
    fields
        .asMap()
        .forEach(
            (key, field) -> {
              if (field.isJsonObject() && field.getAsJsonObject().has("id")) {
                operands.put(key, named.get(field.getAsJsonObject().get("id").getAsLong()));
              }
            });
    return operands;
  }

  private static UserArray[] data(JsonObject line) {
    JsonArray data = line.has("data") ? line.getAsJsonArray("data") : new JsonArray();
    return data.asList().stream()
        .map(word -> UserArray.wrap(Words.littleEndian(word.getAsString())))
        .toArray(UserArray[]::new);
  }

  /** Adds what a call returned to the answer, and names the ztensors that it created. */
  private void returned(
      String name,
      Object returned,
      JsonObject fields,
      Map<String, Ztensor> operands,
      JsonObject answer) {
    if (returned instanceof Boolean value) {
      answer.addProperty("value", value);
      return;
    }
    if (returned instanceof Long value) {
      answer.addProperty("value", value);
      return;
    }
    answer.addProperty("status", 0);
    if (returned instanceof FloatRange range) {
      JsonArray words = new JsonArray();
      Stream.of(range.getMin(), range.getMax())
          .forEach(bound -> words.add(String.format("%08X", Float.floatToRawIntBits(bound))));
      answer.add("range", words);
    } else if (returned instanceof UserArray array) {
      answer.addProperty("data_out", Words.of(array.buffer(), width(operands.get("ztensor"))));
    } else {
      Verbs.outputs(returned, fields).forEach(operands::putIfAbsent);
      operands.forEach((key, ztensor) -> name(fields.get(key), ztensor));
    }
  }

  private void name(JsonElement field, Ztensor ztensor) {
    if (field.isJsonPrimitive()) {
      named.put(field.getAsLong(), ztensor);
    } else if (field.getAsJsonObject().has("new_id")) {
      named.put(field.getAsJsonObject().get("new_id").getAsLong(), ztensor);
    }
  }

  private static void refused(
      ZdnnException error, Map<String, Ztensor> operands, JsonObject answer) {
    answer.addProperty("status", Integer.toUnsignedLong(error.status()));
    error.violation().ifPresent(violation -> answer.add("violation", violation(violation)));
    error.refusal().ifPresent(refusal -> answer.addProperty("refusal", refusal.getConstraint()));
    if (error.result().hasData()) {
      ByteBuffer data = error.result().getData().asReadOnlyByteBuffer();
      answer.addProperty("data_out", Words.of(data, width(operands.get("ztensor"))));
    }
  }

  private static JsonObject violation(RangeViolation violation) {
    JsonObject violations = new JsonObject();
    violation
        .getOperandsList()
        .forEach(
            operand -> {
              JsonArray elements = new JsonArray();
              operand.getElementsList().forEach(violating -> elements.add(element(violating)));
              violations.add(operand.getOperand(), elements);
            });
    return violations;
  }

  private static JsonArray element(ViolatingElement violating) {
    JsonArray words = new JsonArray();
    violating.getIndexList().forEach(words::add);
    words.add(String.format("%04X", violating.getCode()));
    for (float value : violating.getOperandValuesList()) {
      if (Float.isFinite(value)) {
        words.add((double) value);
      } else {
        words.add(String.valueOf(value));
      }
    }
    return words;
  }

  private static JsonObject outputs(Map<String, Ztensor> operands) {
    JsonObject outputs = new JsonObject();
    operands.forEach(
        (key, ztensor) -> {
          if (OUTPUTS.contains(key)) {
            outputs.add(key, seen(ztensor));
          }
        });
    return outputs;
  }

  private static JsonObject seen(Ztensor ztensor) {
    JsonObject seen = new JsonObject();
    seen.addProperty("is_transformed", ztensor.isTransformed());
    seen.addProperty("buffer_size", ztensor.bufferSize());
    seen.addProperty("rec_scale", (double) ztensor.recScale());
    seen.addProperty("offset", (double) ztensor.offset());
    if (ztensor.hasBuffer()) {
      int cell =
          switch (ztensor.transformedDesc().getType()) {
            case ZDNN_BINARY_INT8 -> 1;
            case ZDNN_BINARY_INT32 -> 4;
            default -> 2;
          };
      seen.addProperty("memory", Words.of(ztensor.readSticks(), cell));
    }
    return seen;
  }

  private static int width(Ztensor ztensor) {
    DataTypes type = ztensor.preTransformedDesc().getType();
    return type == DataTypes.INT8 ? 1 : type == DataTypes.FP16 || type == DataTypes.BFLOAT ? 2 : 4;
  }

  private static JsonArray flags(int raised) {
    JsonArray flags = new JsonArray();
    Stream.of(FpFlags.FP_FLAGS_INVALID, FpFlags.FP_FLAGS_OVERFLOW, FpFlags.FP_FLAGS_UNDERFLOW)
        .filter(flag -> (raised & flag.getNumber()) != 0)
        .forEach(flag -> flags.add(flag.name().substring("FP_FLAGS_".length())));
    return flags;
  }
}
