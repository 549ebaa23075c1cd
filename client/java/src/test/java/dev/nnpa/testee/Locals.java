// SPDX-License-Identifier: Apache-2.0
package dev.nnpa.testee;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import dev.nnpa.Descriptors;
import dev.nnpa.Options;
import dev.nnpa.Session;
import dev.nnpa.Statuses;
import dev.nnpa.ZdnnException;
import dev.nnpa.Ztensors;
import dev.nnpa.zdnn.v1.DataTypes;
import dev.nnpa.zdnn.v1.TensorDesc;
import dev.nnpa.zdnn.v1.Ztensor;
import java.io.UncheckedIOException;
import java.math.BigInteger;
import java.util.stream.IntStream;

/** Calls the local functions by their C names without prefix. */
final class Locals {
  private Locals() {}

  /** Calls one, and writes its result or status into {@code answer}. */
  static void call(String target, String function, JsonObject arguments, JsonObject answer) {
    try {
      answer.add("result", result(target, function, arguments));
    } catch (ZdnnException error) {
      answer.addProperty("status", error.status());
    }
  }

  private static JsonElement result(String target, String function, JsonObject given) {
    return switch (function) {
      case "init_pre_transformed_desc" ->
          told(
              Descriptors.initPreTransformedDesc(
                  number(given, "layout"), number(given, "type"), dims(given)));
      case "generate_transformed_desc" -> told(Descriptors.generateTransformedDesc(pre(given)));
      case "generate_quantized_transformed_desc" ->
          told(
              Descriptors.generateQuantizedTransformedDesc(
                  pre(given), number(given, "transform_type")));
      case "generate_transformed_desc_concatenated" ->
          told(Descriptors.generateTransformedDescConcatenated(pre(given), number(given, "info")));
      case "getsize_ztensor" -> {
        long size =
            Descriptors.getsizeZtensor(descriptor(given.getAsJsonObject("transformed_desc")));
        yield new JsonPrimitive(new BigInteger(Long.toUnsignedString(size)));
      }
      case "get_max_limit" -> {
        int type = number(given, "pre_transformed_type");
        yield bits(type, Descriptors.getMaxLimit(number(given, "transformed_type"), type));
      }
      case "get_min_limit" -> {
        int type = number(given, "pre_transformed_type");
        yield bits(type, Descriptors.getMinLimit(number(given, "transformed_type"), type));
      }
      case "get_status_message" ->
          new JsonPrimitive(Statuses.getStatusMessage(number(given, "status")));
      default -> inSession(target, function, given);
    };
  }

  private static JsonElement inSession(String target, String function, JsonObject given) {
    String library = given.has("library") ? given.get("library").getAsString() : "1.2.0";
    try (Session session = Session.connect(target, new Options().library(library))) {
      return switch (function) {
        case "get_library_version" -> new JsonPrimitive(session.getLibraryVersion());
        case "get_library_version_str" -> new JsonPrimitive(session.getLibraryVersionStr());
        case "is_quantized_ztensor" -> {
          TensorDesc pre = Descriptors.initPreTransformedDesc(0, DataTypes.FP32_VALUE, 1);
          Ztensor.Builder structure =
              Ztensor.newBuilder().setRecScale(given.get("rec_scale").getAsFloat());
          structure.setTransformedDesc(Descriptors.generateTransformedDesc(pre));
          yield new JsonPrimitive(
              Ztensors.isQuantizedZtensor(session.putZtensor(structure.build(), null)));
        }
        default -> throw new IllegalArgumentException("local: " + function);
      };
    }
  }

  /** Returns an integer of 32 bits, signed or not. */
  static int number(JsonObject given, String name) {
    return (int) given.get(name).getAsLong();
  }

  private static int[] dims(JsonObject given) {
    var dims = given.getAsJsonArray("dims");
    return IntStream.range(0, dims.size())
        .map(place -> (int) dims.get(place).getAsLong())
        .toArray();
  }

  private static TensorDesc pre(JsonObject given) {
    return descriptor(given.getAsJsonObject("pre_transformed_desc"));
  }

  /** Returns the descriptor of plain JSON. */
  static TensorDesc descriptor(JsonObject given) {
    return parsed(given, TensorDesc.newBuilder()).build();
  }

  /** Reads proto JSON into a message. */
  static <B extends Message.Builder> B parsed(JsonObject given, B builder) {
    try {
      JsonFormat.parser().merge(given.toString(), builder);
      return builder;
    } catch (InvalidProtocolBufferException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static JsonElement told(TensorDesc desc) {
    try {
      String text =
          JsonFormat.printer().preservingProtoFieldNames().printingEnumsAsInts().print(desc);
      return JsonParser.parseString(text);
    } catch (InvalidProtocolBufferException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Returns the bits of a limit, a normal number or an integer, as a word of its type. */
  private static JsonElement bits(int type, double limit) {
    int single = Float.floatToRawIntBits((float) limit);
    return new JsonPrimitive(
        switch (DataTypes.forNumber(type)) {
          case FP32 -> String.format("%08X", single);
          case BFLOAT -> String.format("%04X", single >>> 16);
          case FP16 ->
              String.format(
                  "%04X", single >>> 16 & 0x8000 | (single >>> 13 & 0x3FFFF) - (112 << 10));
          case INT8 -> String.format("%02X", (byte) limit);
          default -> String.format("%08X", (int) limit);
        });
  }
}
