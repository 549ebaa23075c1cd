// SPDX-License-Identifier: Apache-2.0
package dev.nnpa.bench;

import com.google.gson.JsonObject;
import dev.nnpa.Endpoint;
import dev.nnpa.Options;
import dev.nnpa.Pipeline;
import dev.nnpa.Session;
import dev.nnpa.Zdnn;
import dev.nnpa.Ztensor;
import dev.nnpa.zdnn.v1.Add;
import dev.nnpa.zdnn.v1.ExecuteRequest;
import dev.nnpa.zdnn.v1.Operation;
import dev.nnpa.zdnn.v1.TensorRef;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.stub.ClientCalls;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.Arrays;

/**
 * What this library adds to a call, over its session's stream and as a unary call, beside a bare echo
 * of as many bytes: Latency SERVER ECHO.
 */
public final class Latency {
  private static final int LISTED = 100;
  private static final int REPETITIONS = 400;
  // A JVM compiles what has run often: about as many rounds as these.
  private static final int WARM_UP = 1000;
  private static final int ROWS = 32;
  private static final int COLUMNS = 64;

  private Latency() {}

  private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
    @Override
    public InputStream stream(byte[] value) {
      return new ByteArrayInputStream(value);
    }

    @Override
    public byte[] parse(InputStream stream) {
      try {
        return stream.readAllBytes();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }

  private static final MethodDescriptor<byte[], byte[]> RAW =
      MethodDescriptor.newBuilder(new Bytes(), new Bytes())
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("nnpa.bench.Echo/Raw")
          .build();

  private static void echo(Channel channel, byte[] payload) {
    ClientCalls.blockingUnaryCall(channel, RAW, CallOptions.DEFAULT, payload);
  }

  /** Returns a payload of as many bytes as a request of so many adds has. */
  private static byte[] payload(Session session, int count) {
    TensorRef ref = TensorRef.newBuilder().setId(1).build();
    Add.Builder add = Add.newBuilder().setInputA(ref).setInputB(ref).setOutput(ref);
    ExecuteRequest.Builder request = ExecuteRequest.newBuilder().setSession(session.name());
    for (int place = 0; place < count; place++) {
      request.addOperations(Operation.newBuilder().setAdd(add));
    }
    return new byte[request.build().getSerializedSize()];
  }

  /**
   * Writes the median microseconds of a work over the stream, as a call, and of an echo, in turns,
   * into {@code medians}.
   */
  private static void measure(JsonObject medians, String name, Runnable... works) {
    double[][] times = new double[works.length][REPETITIONS];
    for (int repetition = -WARM_UP; repetition < REPETITIONS; repetition++) {
      for (int which = 0; which < works.length; which++) {
        long began = System.nanoTime();
        works[which].run();
        if (repetition >= 0) {
          times[which][repetition] = (System.nanoTime() - began) / 1e3;
        }
      }
    }
    medians.addProperty(name + "_us", median(times[0]));
    medians.addProperty(name + "_unary_us", median(times[1]));
    medians.addProperty(name + "_echo_us", median(times[2]));
  }

  private static double median(double... values) {
    Arrays.sort(values);
    return (values[(values.length - 1) / 2] + values[values.length / 2]) / 2;
  }

  /** Returns what adds two ztensors into a third. */
  private static Runnable adding(Session session) {
    float[] zeros = new float[ROWS * COLUMNS];
    Ztensor a = session.ztensor(zeros, ROWS, COLUMNS);
    Ztensor b = session.ztensor(zeros, ROWS, COLUMNS);
    Ztensor out = session.ztensor(zeros, ROWS, COLUMNS);
    return () -> Zdnn.add(a, b, out);
  }

  /** Returns what does work a hundred times in one list. */
  private static Runnable listing(Session session, Runnable work) {
    return () -> {
      try (Pipeline pipeline = session.pipeline()) {
        for (int place = 0; place < LISTED; place++) {
          work.run();
        }
        pipeline.run();
      }
    };
  }

  /** Prints the medians as one line of JSON. */
  public static void main(String[] arguments) {
    Endpoint endpoint = Endpoint.of(arguments[0]);
    ManagedChannel channel = Endpoint.of(arguments[1]).channel();
    JsonObject medians = new JsonObject();
    try (Session session = Session.connect(endpoint, new Options());
        Session unary = Session.connect(endpoint.withPlain(true), new Options())) {
      Runnable add = adding(session);
      Runnable addUnary = adding(unary);
      byte[] single = payload(session, 1);
      byte[] many = payload(session, LISTED);
      measure(medians, "add", add, addUnary, () -> echo(channel, single));
      measure(
          medians,
          "pipeline",
          listing(session, add),
          listing(unary, addUnary),
          () -> echo(channel, many));
    } finally {
      channel.shutdownNow();
    }
    System.out.println(medians);
  }
}
