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
  static void call(String target, String function, JsonObject args, JsonObject answer) {
    try {
      answer.add("result", result(target, function, args));
    } catch (ZdnnException error) {
      answer.addProperty("status", error.status());
    }
  }

  private static JsonElement result(String target, String function, JsonObject args) {
    return switch (function) {
      case "init_pre_transformed_desc" ->
          fields(
              Descriptors.initPreTransformedDesc(
                  number(args, "layout"), number(args, "type"), dims(args)));
      case "generate_transformed_desc" -> fields(Descriptors.generateTransformedDesc(pre(args)));
      case "generate_quantized_transformed_desc" ->
          fields(
              Descriptors.generateQuantizedTransformedDesc(
                  pre(args), number(args, "transform_type")));
      case "generate_transformed_desc_concatenated" ->
          fields(Descriptors.generateTransformedDescConcatenated(pre(args), number(args, "info")));
      case "getsize_ztensor" -> {
        long size =
            Descriptors.getsizeZtensor(descriptor(args.getAsJsonObject("transformed_desc")));
        yield new JsonPrimitive(new BigInteger(Long.toUnsignedString(size)));
      }
      case "get_max_limit" -> {
        int type = number(args, "pre_transformed_type");
        yield bits(type, Descriptors.getMaxLimit(number(args, "transformed_type"), type));
      }
      case "get_min_limit" -> {
        int type = number(args, "pre_transformed_type");
        yield bits(type, Descriptors.getMinLimit(number(args, "transformed_type"), type));
      }
      case "get_status_message" ->
          new JsonPrimitive(Statuses.getStatusMessage(number(args, "status")));
      default -> inSession(target, function, args);
    };
  }

  private static JsonElement inSession(String target, String function, JsonObject args) {
    String library = args.has("library") ? args.get("library").getAsString() : "1.2.0";
    try (Session session = Session.connect(target, new Options().library(library))) {
      return switch (function) {
        case "get_library_version" -> new JsonPrimitive(session.getLibraryVersion());
        case "get_library_version_str" -> new JsonPrimitive(session.getLibraryVersionStr());
        case "is_quantized_ztensor" -> {
          TensorDesc pre = Descriptors.initPreTransformedDesc(0, DataTypes.FP32_VALUE, 1);
          Ztensor.Builder structure =
              Ztensor.newBuilder().setRecScale(args.get("rec_scale").getAsFloat());
          structure.setTransformedDesc(Descriptors.generateTransformedDesc(pre));
          yield new JsonPrimitive(
              Ztensors.isQuantizedZtensor(session.putZtensor(structure.build(), null)));
        }
        default -> throw new IllegalArgumentException("local: " + function);
      };
    }
  }

  /** Returns an integer of 32 bits, signed or not. */
  static int number(JsonObject args, String name) {
    return (int) args.get(name).getAsLong();
  }

  private static int[] dims(JsonObject args) {
    var dims = args.getAsJsonArray("dims");
    return IntStream.range(0, dims.size())
        .map(place -> (int) dims.get(place).getAsLong())
        .toArray();
  }

  private static TensorDesc pre(JsonObject args) {
    return descriptor(args.getAsJsonObject("pre_transformed_desc"));
  }

  /** Returns the descriptor of plain JSON. */
  static TensorDesc descriptor(JsonObject args) {
    return parsed(args, TensorDesc.newBuilder()).build();
  }

  /** Reads proto JSON into a message. */
  static <B extends Message.Builder> B parsed(JsonObject args, B builder) {
    try {
      JsonFormat.parser().merge(args.toString(), builder);
      return builder;
    } catch (InvalidProtocolBufferException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static JsonElement fields(TensorDesc desc) {
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
