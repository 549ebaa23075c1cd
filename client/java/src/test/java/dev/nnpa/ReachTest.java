// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Context;
import io.grpc.Deadline;
import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** How a server is reached: addresses, TLS, tokens, deadlines. */
final class ReachTest {
  /** A machine lists itself over a Unix socket and over TCP alike. */
  @Test
  void machines() {
    var unix = Session.machines(Endpoint.of(LocalServer.shared().unix()));
    assertTrue(unix.stream().anyMatch(machine -> machine.getName().equals("machines/telum2")));
    assertEquals(unix, Session.machines(Endpoint.of(LocalServer.shared().tcp())));
  }

  /** A private server ends with its session, socket and all. */
  @Test
  void privateServer() {
    Session session = Session.connect(new Options().machine("telum1"));
    Path socket = Path.of(session.target().substring("unix:".length()));
    assertEquals("machines/telum1", session.machine().getName());
    assertTrue(Files.exists(socket));
    session.close();
    assertFalse(Files.exists(socket.getParent()));
  }

  /** A server that is not there is an error that says how to get one, one that ends is said so. */
  @Test
  void noPrivateServer() {
    String install = "`pip install '.[server]'` in a clone of nnpa brings nnpa-server to the PATH";
    var ends = Map.of("/nowhere/nnpa-server", install, "false", "did not start: it ended");
    for (var program : ends.entrySet()) {
      TransportException error =
          assertThrows(TransportException.class, () -> PrivateServer.start(program.getKey()));
      assertTrue(error.getMessage().contains(program.getValue()), error.getMessage());
    }
  }

  /** What is no address is refused before anything is opened. */
  @ParameterizedTest
  @ValueSource(strings = {"localhost", "unix:", ":50051", "host:port", ""})
  void addresses(String target) {
    assertThrows(IllegalArgumentException.class, () -> Endpoint.of(target, Map.of()));
  }

  /** Certificate, key and CA go together. */
  @Test
  void tlsFilesGoTogether() {
    Endpoint plain = Endpoint.of("host:1", Map.of());
    Path file = Path.of("file.pem");
    assertThrows(IllegalArgumentException.class, () -> plain.withTls(file, file, null));
    assertThrows(IllegalArgumentException.class, () -> plain.withTls(null, file, file));
  }

  /** The environment says how to be let in; TLS is not for Unix sockets, arguments win. */
  @Test
  void environment() {
    Map<String, String> environment = Map.of("ZDNN_TLS_CA", "ca.pem", "ZDNN_TOKEN", "secret");
    Endpoint tcp = Endpoint.of("host:1", environment);
    assertEquals(Path.of("ca.pem"), tcp.tlsCa());
    assertEquals("secret", tcp.token());
    assertNull(Endpoint.of("unix:/socket", environment).tlsCa());
    assertEquals("other", tcp.withToken("other").token());
  }

  /** What is printed of an endpoint does not tell the token. */
  @Test
  void tokensAreNotPrinted() {
    assertFalse(Endpoint.of("host:1", Map.of()).withToken("secret").toString().contains("secret"));
  }

  /** Nobody listening is an error that names the address and says what to do. */
  @Test
  void nobodyListens() {
    TransportException error =
        assertThrows(TransportException.class, () -> Session.connect("127.0.0.1:1"));
    assertEquals("UNAVAILABLE", error.code());
    assertTrue(error.getMessage().contains("127.0.0.1:1: "), error.getMessage());
    assertTrue(error.advice().contains("nnpa-server"), error.advice());
  }

  /** The token travels with every call, as a bearer. */
  @Test
  void tokens() throws IOException {
    try (RecordingServer server = new RecordingServer()) {
      Session.connect(Endpoint.of(server.target(), Map.of()).withToken("secret"), new Options())
          .close();
      assertEquals(List.of("Bearer secret", "Bearer secret"), server.authorizations());
    }
  }

  /** Mutual TLS opens a server that asks for it; without the certificate there is no session. */
  @Test
  void tls(@TempDir Path folder) throws Exception {
    Certificates files = Certificates.make(folder);
    String[] flags = {
      "--tls-cert",
      files.certificate(),
      "--tls-key",
      files.key(),
      "--tls-client-ca",
      files.certificate()
    };
    Path certificate = Path.of(files.certificate());
    try (LocalServer server = new LocalServer(flags)) {
      Endpoint plain =
          Endpoint.of(server.tcp(), Map.of()).withConnectTimeout(Duration.ofSeconds(5));
      Endpoint mutual = plain.withTls(certificate, certificate, Path.of(files.key()));
      try (Session session = Session.connect(mutual, new Options())) {
        assertTrue(Zdnn.isNnpaInstalled(session));
      }
      for (Endpoint stranger : List.of(plain, plain.withTls(certificate))) {
        TransportException error =
            assertThrows(TransportException.class, () -> Session.connect(stranger, new Options()));
        assertEquals("UNAVAILABLE", error.code());
        String says = server.tcp() + " speaks TLS. Give Endpoint.withTls, or set ZDNN_TLS_CA";
        assertEquals(stranger == plain, error.getMessage().contains(says), error.getMessage());
      }
    }
    Endpoint broken = Endpoint.of("host:1", Map.of()).withTls(Path.of(files.key()));
    assertThrows(IllegalArgumentException.class, broken::channel);
  }

  /** A call beyond its deadline is DEADLINE_EXCEEDED, whether from the endpoint or the context. */
  @Test
  void deadlines() {
    Endpoint endpoint = Endpoint.of(LocalServer.shared().unix());
    try (Session hasty =
        Session.connect(endpoint.withTimeout(Duration.ofNanos(1)), new Options())) {
      TransportException error =
          assertThrows(TransportException.class, () -> hasty.execute(List.of()));
      assertEquals("DEADLINE_EXCEEDED", error.code());
    }
    ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor();
    try (Session session = Session.connect(endpoint, new Options());
        Context.CancellableContext brief =
            Context.current().withDeadline(Deadline.after(1, TimeUnit.NANOSECONDS), timer)) {
      Runnable call = () -> session.execute(List.of());
      TransportException error = assertThrows(TransportException.class, () -> brief.run(call));
      assertEquals("DEADLINE_EXCEEDED", error.code());
      assertEquals(List.of(), session.execute(List.of()));
    } finally {
      timer.shutdownNow();
    }
  }

  /** After a lost answer the client asks what has run, through a transport of the caller's own. */
  @Test
  void lostAnswers() {
    AtomicBoolean lose = new AtomicBoolean();
    try (Session session = Session.connect(losing(lose), new Options())) {
      Ztensor a = session.ztensor(new float[] {1, 2}, 2);
      lose.set(true);
      assertThrows(TransportException.class, () -> Zdnn.resetZtensor(a));
      assertFalse(a.isTransformed());
    }
  }

  /** Returns a transport that runs one Execute, when told, and loses its answer. */
  private static Transport losing(AtomicBoolean lose) {
    Transport real = new GrpcTransport(Endpoint.of(LocalServer.shared().unix()));
    InvocationHandler handler =
        (proxy, method, arguments) -> {
          Object answer = method.invoke(real, arguments);
          if (method.getName().equals("execute") && lose.getAndSet(false)) {
            throw new TransportException("UNAVAILABLE", "lost", "", Map.of(), null);
          }
          return answer;
        };
    Class<?>[] seam = {Transport.class};
    return (Transport) Proxy.newProxyInstance(Transport.class.getClassLoader(), seam, handler);
  }
}
