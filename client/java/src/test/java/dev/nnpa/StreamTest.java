// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.Any;
import com.google.rpc.ErrorInfo;
import com.google.rpc.Status;
import dev.nnpa.zdnn.v1.ExecuteResponse;
import dev.nnpa.zdnn.v1.Operation;
import dev.nnpa.zdnn.v1.OperationResult;
import io.grpc.Context;
import io.grpc.Status.Code;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Lists over a stream: the same answers as calls, and servers that go away. */
final class StreamTest {
  private static void answer(StreamObserver<ExecuteResponse> answers) {
    answers.onNext(ExecuteResponse.getDefaultInstance());
  }

  private static String counts(Endpoint endpoint, ListServer server) {
    try (Session session = Session.connect(endpoint, new Options())) {
      for (int list = 0; list < 3; list++) {
        session.execute(List.of());
      }
    }
    return server.counts();
  }

  private static StatusRuntimeException refusal(Code code, String reason, String field) {
    ErrorInfo info =
        ErrorInfo.newBuilder()
            .setReason(reason)
            .setDomain("nnpa")
            .putMetadata("field", field)
            .build();
    Status.Builder status =
        Status.newBuilder().setCode(code.value()).setMessage("upstream connect error");
    return StatusProto.toStatusRuntimeException(
        reason.isEmpty() ? status.build() : status.addDetails(Any.pack(info)).build());
  }

  /** The lists of a session share one stream; with a timeout, or plainly, each is a call. */
  @Test
  void listsShareAStream() throws IOException {
    try (ListServer server = new ListServer(StreamTest::answer)) {
      assertEquals("1 streams, 0 calls", counts(server.endpoint(), server));
      assertEquals("1 streams, 3 calls", counts(server.endpoint().withPlain(true), server));
      Endpoint bounded = server.endpoint().withTimeout(Duration.ofMinutes(1));
      assertEquals("1 streams, 6 calls", counts(bounded, server));
    }
  }

  /** The environment leaves the stream out by 1 or by its name, and unknown names are refused. */
  @ParameterizedTest
  @ValueSource(strings = {"1", "stream", "shared-memory, stream"})
  void theEnvironmentLeavesStreamsOut(String names) {
    assertTrue(Endpoint.of("host:1", Map.of("ZDNN_PLAIN", names)).plain());
    assertFalse(Endpoint.of("host:1", Map.of("ZDNN_PLAIN", "shared-memory")).plain());
    Map<String, String> wrong = Map.of("ZDNN_PLAIN", "steam");
    IllegalArgumentException error =
        assertThrows(IllegalArgumentException.class, () -> Endpoint.of("host:1", wrong));
    assertTrue(error.getMessage().startsWith("ZDNN_PLAIN: steam, expected 1, or some of stream"));
  }

  /** Where a server has no room for a stream, or none at all, lists are calls; it is asked once. */
  @Test
  void noStream() throws IOException {
    for (StatusRuntimeException refusal :
        List.of(
            refusal(Code.RESOURCE_EXHAUSTED, "CALL_QUOTA_EXCEEDED", "max_conversations"),
            refusal(Code.UNIMPLEMENTED, "", ""))) {
      try (ListServer server = new ListServer(answers -> answers.onError(refusal))) {
        assertEquals("1 streams, 3 calls", counts(server.endpoint(), server));
      }
    }
  }

  /** A stream that the server has ended between two lists is no error of the next one. */
  @Test
  void endedStreamsAreReplaced() throws IOException {
    try (ListServer server =
            new ListServer(
                answers -> {
                  answer(answers);
                  answers.onCompleted();
                });
        Session session = Session.connect(server.endpoint(), new Options())) {
      session.execute(List.of());
      session.listTensors(); // Its answer comes after the end of the stream.
      session.execute(List.of());
      assertEquals("2 streams, 0 calls", server.counts());
    }
  }

  /** A list that is given up ends its stream, and no later list gets its answer. */
  @Test
  void givingUp() throws Exception {
    AtomicBoolean silent = new AtomicBoolean(true);
    CountDownLatch arrived = new CountDownLatch(1);
    ExecuteResponse second =
        ExecuteResponse.newBuilder()
            .addResults(OperationResult.newBuilder().setZdnnStatus(7))
            .build();
    try (ListServer server =
            new ListServer(
                answers -> {
                  if (silent.getAndSet(false)) {
                    arrived.countDown();
                  } else {
                    answers.onNext(second);
                  }
                });
        Session session = Session.connect(server.endpoint(), new Options());
        Context.CancellableContext context = Context.current().withCancellation()) {
      Thread canceller =
          new Thread(
              () -> {
                try {
                  arrived.await();
                } catch (InterruptedException error) {
                  Thread.currentThread().interrupt();
                }
                context.cancel(null);
              });
      canceller.start();
      Runnable list = () -> session.execute(List.of());
      TransportException error = assertThrows(TransportException.class, () -> context.run(list));
      canceller.join();
      assertEquals("CANCELLED", error.code());
      assertFalse(error instanceof SessionLostException, error.getMessage());
      assertEquals(7, session.execute(List.of()).get(0).getZdnnStatus());
      assertEquals(2, server.streams.get());
    }
  }

  /** Results and errors are the same over a stream as in calls, and the session goes on. */
  @Test
  void streamsAnswerAsCalls() {
    List<String> seen = new ArrayList<>();
    for (boolean plain : List.of(false, true)) {
      Endpoint endpoint = Endpoint.of(LocalServer.shared().unix()).withPlain(plain);
      try (Session session = Session.connect(endpoint, new Options())) {
        Ztensor two = session.ztensor(new float[] {1, 2}, 2);
        Ztensor three = session.ztensor(new float[3], 3);
        NnpaException check = assertThrows(NnpaException.class, () -> Zdnn.add(two, three));
        List<Operation> empty = List.of(Operation.getDefaultInstance());
        NnpaException unknown = assertThrows(NnpaException.class, () -> session.execute(empty));
        String sum = Arrays.toString(Zdnn.add(two, two).floats());
        seen.add(check.getMessage() + unknown.getMessage() + sum);
      }
    }
    assertEquals(seen.get(0), seen.get(1));
    assertTrue(seen.get(0).contains("OPERATION_UNKNOWN"), seen.get(0));
  }

  /** A server that goes away is told as lost, over a stream and in calls, by whatever code. */
  @ParameterizedTest
  @EnumSource(
      value = Code.class,
      names = {"UNAVAILABLE", "INTERNAL", "CANCELLED", "UNKNOWN"})
  void lostServers(Code code) throws IOException {
    for (boolean plain : List.of(false, true)) {
      try (ListServer server = new ListServer(refusal(code, "", ""));
          Session session =
              Session.connect(server.endpoint().withPlain(plain), new Options())) {
        SessionLostException lost =
            assertThrows(SessionLostException.class, () -> session.execute(List.of()));
        assertEquals(code.name(), lost.code());
        assertTrue(
            lost.getMessage().contains("the server of this session is gone: "), lost.getMessage());
        assertTrue(lost.getMessage().contains(". Connect again"), lost.getMessage());
      }
    }
  }

  /** A server that gives a reason of ours lives, and is not told as lost. */
  @Test
  void serversWithAReasonLive() throws IOException {
    for (boolean plain : List.of(false, true)) {
      try (ListServer server = new ListServer(refusal(Code.INTERNAL, "INTERNAL", ""));
          Session session =
              Session.connect(server.endpoint().withPlain(plain), new Options())) {
        TransportException error =
            assertThrows(TransportException.class, () -> session.execute(List.of()));
        assertEquals("INTERNAL", error.reason());
        assertFalse(error instanceof SessionLostException, error.getMessage());
      }
    }
  }
}
