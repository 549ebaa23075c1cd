// SPDX-License-Identifier: Apache-2.0
package dev.nnpa.testee;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import dev.nnpa.Session;
import dev.nnpa.UserArray;
import dev.nnpa.Zdnn;
import dev.nnpa.Ztensor;
import dev.nnpa.Ztensors;
import dev.nnpa.zdnn.v1.TensorDesc;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Parameter;
import java.lang.reflect.RecordComponent;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;

/** Finds the public method of a C function, and calls it with arguments by C's names. */
final class Verbs {
  private Verbs() {}

  /** What a vector asks for and Java cannot say. */
  static final class Inexpressible extends RuntimeException {
    private static final long serialVersionUID = 1L;

    Inexpressible(String why) {
      super(why);
    }
  }

  /** Calls a verb; {@code data} are the user arrays of a transform. */
  static Object call(
      Session session,
      String name,
      JsonObject fields,
      Map<String, Ztensor> operands,
      UserArray... data) {
    Method method = method(name);
    Object[] arguments =
        Stream.of(method.getParameters())
            .map(parameter -> argument(parameter, session, fields, operands, data))
            .toArray();
    try {
      return method.invoke(null, arguments);
    } catch (InvocationTargetException error) {
      if (error.getCause() instanceof RuntimeException thrown) {
        throw thrown;
      }
      throw new IllegalStateException(error.getCause());
    } catch (IllegalAccessException error) {
      throw new IllegalStateException(error);
    }
  }

  /** Returns the overload that takes all outputs, and any number for an enum. */
  private static Method method(String name) {
    return Stream.of(Zdnn.class, Ztensors.class)
        .flatMap(face -> Stream.of(face.getMethods()))
        .filter(method -> method.getName().equals(camel(name)))
        .filter(
            method -> method.getReturnType() != void.class || !name.equals("transform_origtensor"))
        .max(Comparator.comparing(Verbs::numbers).thenComparing(Method::getParameterCount))
        .orElseThrow();
  }

  private static boolean numbers(Method method) {
    return Arrays.stream(method.getParameterTypes())
        .noneMatch(type -> type.isEnum() || type.isArray() && type.getComponentType().isEnum());
  }

  private static String camel(String name) {
    String[] parts = name.split("_");
    StringBuilder camel = new StringBuilder(parts[0]);
    for (String part : Arrays.copyOfRange(parts, 1, parts.length)) {
      camel.append(Character.toUpperCase(part.charAt(0))).append(part.substring(1));
    }
    return camel.toString();
  }

  private static Object argument(
      Parameter parameter,
      Session session,
      JsonObject fields,
      Map<String, Ztensor> operands,
      UserArray... data) {
    Class<?> type = parameter.getType();
    String key =
        fields.keySet().stream()
            .filter(name -> parameter.getName().equals(camel(alias(name))))
            .findFirst()
            .orElse(null);
    if (type == Session.class) {
      return session;
    }
    if (type == Ztensor.class) {
      return key == null ? missing(parameter) : operands.get(key);
    }
    if (type == UserArray[].class) {
      return data;
    }
    if (type == UserArray.class) {
      return data.length == 0 ? missing(parameter) : data[0];
    }
    return key == null ? absent(parameter, fields) : value(type, fields.get(key));
  }

  /** Returns C's name of what the wire names otherwise. */
  private static String alias(String name) {
    return switch (name) {
      case "pre_transformed_desc" -> "pre_tfrmd_desc";
      case "transformed_desc" -> "tfrmd_desc";
      default -> name;
    };
  }

  private static Object absent(Parameter parameter, JsonObject fields) {
    Class<?> type = parameter.getType();
    if (type == Float.class) {
      return null;
    }
    if (parameter.getName().equals("count")) {
      return Stream.of("function_codes", "format_codes")
          .filter(fields::has)
          .mapToInt(key -> fields.getAsJsonArray(key).size())
          .sum();
    }
    return parameter.getName().equals("allTimesteps") ? Boolean.FALSE : missing(parameter);
  }

  private static Object missing(Parameter parameter) {
    throw new Inexpressible(parameter.getName() + ": a call without it does not compile");
  }

  private static Object value(Class<?> type, JsonElement json) {
    if (type == TensorDesc.class) {
      return Locals.descriptor(json.getAsJsonObject());
    }
    if (type == int[].class) {
      JsonArray codes = json.getAsJsonArray();
      return codes.asList().stream().mapToInt(code -> (int) code.getAsLong()).toArray();
    }
    if (type == boolean.class) {
      return json.getAsBoolean();
    }
    boolean real = type == float.class || type == Float.class;
    return real ? (Object) json.getAsFloat() : (Object) (int) json.getAsLong();
  }

  /** Returns the ztensors that a call returned, by C's name of the operand. */
  static Map<String, Ztensor> outputs(Object returned, JsonObject fields) {
    Map<String, Ztensor> outputs = new HashMap<>();
    if (returned instanceof Ztensor ztensor) {
      fields
          .asMap()
          .forEach(
              (key, reference) -> {
                if (key.equals("ztensor")
                    || reference.isJsonObject() && reference.getAsJsonObject().has("new_id")) {
                  outputs.put(key, ztensor);
                }
              });
    } else if (returned instanceof Record tuple) {
      for (RecordComponent component : tuple.getClass().getRecordComponents()) {
        fields.keySet().stream()
            .filter(key -> camel(key).equals(component.getName()))
            .forEach(key -> outputs.put(key, component(tuple, component)));
      }
    }
    return outputs;
  }

  private static Ztensor component(Record tuple, RecordComponent component) {
    try {
      return (Ztensor) component.getAccessor().invoke(tuple);
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }
}
