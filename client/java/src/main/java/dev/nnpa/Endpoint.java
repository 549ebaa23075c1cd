// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.netty.shaded.io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.ChannelOption;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.nio.NioEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.socket.nio.NioDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslContext;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslContextBuilder;
import io.grpc.netty.shaded.io.netty.handler.ssl.util.InsecureTrustManagerFactory;
import io.grpc.netty.shaded.io.netty.util.concurrent.DefaultThreadFactory;
import io.grpc.stub.MetadataUtils;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.UnixDomainSocketAddress;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLSocket;

/**
 * A server's address, the credentials for it, and timeouts.
 *
 * @param target "host:port" or "unix:/path"
 * @param tlsCa file with the certificates that may sign the server's, PEM; null: no TLS
 * @param tlsCert file with the client's certificate, PEM, for mutual TLS, or null
 * @param tlsKey file with the key of {@code tlsCert}, PEM, or null
 * @param token bearer token that is sent with every call; "" sends none
 * @param connectTimeout bounds the calls that open and close a session
 * @param timeout bounds every other call; null waits as long as it takes. A shorter deadline of
 *     {@link io.grpc.Context#current()} holds as well
 * @param plain sends each list as a call of its own, not over the session's stream
 */
public record Endpoint(
    String target,
    Path tlsCa,
    Path tlsCert,
    Path tlsKey,
    String token,
    Duration connectTimeout,
    Duration timeout,
    boolean plain) {

  private static final String UNIX = "unix:";
  private static final Pattern URL = Pattern.compile("(\\w*)://(.*?)/*");
  // Schemes of targets that gRPC resolves; source: gRPC, naming.md.
  private static final Set<String> SCHEMES = Set.of("unix", "dns", "ipv4", "ipv6");
  // Names that a client of any language has a shortcut of.
  private static final List<String> SHORTCUTS =
      List.of("stream", "plain-socket", "out-of-band-arrays", "content-cache", "shared-memory");
  private static final int PROBE_MILLISECONDS = 2000;
  private static final Pattern HOST_PORT = Pattern.compile(".+:[0-9]{1,5}");
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

  /** Checks the target, and that options that belong together are given together. */
  public Endpoint {
    if ((tlsCert == null) != (tlsKey == null)) {
      String option = tlsKey == null ? "tlsCert" : "tlsKey";
      throw new IllegalArgumentException(option + ": given alone, tlsCert and tlsKey go together");
    }
    if (tlsCert != null && tlsCa == null) {
      throw new IllegalArgumentException("tlsCa: not given, tlsCert needs it");
    }
    Matcher url = URL.matcher(target);
    if (url.matches() && !SCHEMES.contains(url.group(1))) {
      String advice = "; give " + url.group(2) + ", and withTls where the server has TLS";
      throw new IllegalArgumentException(
          "target: " + target + " is a URL, expected host:port" + advice);
    }
    boolean path = target.startsWith(UNIX) && target.length() > UNIX.length();
    if (!path && !HOST_PORT.matcher(target).matches()) {
      throw new IllegalArgumentException(
          "target: " + target + ", expected host:port or unix:/path");
    }
  }

  /**
   * Returns the endpoint of a target with the environment's variables: {@code ZDNN_TLS_CA}, {@code
   * ZDNN_TLS_CERT}, {@code ZDNN_TLS_KEY} (for host:port; Unix sockets need none), {@code
   * ZDNN_TOKEN}, and {@code ZDNN_PLAIN}: 1, or names of shortcuts, of which this library has
   * "stream".
   */
  public static Endpoint of(String target) {
    return of(target, System.getenv());
  }

  static Endpoint of(String target, Map<String, String> environment) {
    boolean tls = !target.startsWith(UNIX);
    return new Endpoint(
        target,
        tls ? file(environment, "ZDNN_TLS_CA") : null,
        tls ? file(environment, "ZDNN_TLS_CERT") : null,
        tls ? file(environment, "ZDNN_TLS_KEY") : null,
        environment.getOrDefault("ZDNN_TOKEN", ""),
        Duration.ofSeconds(10),
        null,
        plain(environment.getOrDefault("ZDNN_PLAIN", "")));
  }

  private static boolean plain(String text) {
    List<String> names = Stream.of(text.split(",")).map(String::strip).toList();
    for (String name : names) {
      if (!List.of("", "0", "1").contains(name) && !SHORTCUTS.contains(name)) {
        throw new IllegalArgumentException(
            "ZDNN_PLAIN: " + name + ", expected 1, or some of " + String.join(", ", SHORTCUTS));
      }
    }
    return names.contains("1") || names.contains("stream");
  }

  private static Path file(Map<String, String> environment, String name) {
    String text = environment.getOrDefault(name, "");
    return text.isEmpty() ? null : Path.of(text);
  }

  /** Returns this endpoint with TLS: files with certificates that may sign the server's, PEM. */
  public Endpoint withTls(Path ca) {
    return new Endpoint(target, ca, tlsCert, tlsKey, token, connectTimeout, timeout, plain);
  }

  /** Returns this endpoint with mutual TLS: a CA, and the client's own certificate and key, PEM. */
  public Endpoint withTls(Path ca, Path cert, Path key) {
    return new Endpoint(target, ca, cert, key, token, connectTimeout, timeout, plain);
  }

  /** Returns this endpoint with a bearer token. */
  public Endpoint withToken(String bearer) {
    return new Endpoint(target, tlsCa, tlsCert, tlsKey, bearer, connectTimeout, timeout, plain);
  }

  /** Returns this endpoint with a bound for the calls that open and close a session. */
  public Endpoint withConnectTimeout(Duration bound) {
    return new Endpoint(target, tlsCa, tlsCert, tlsKey, token, bound, timeout, plain);
  }

  /** Returns this endpoint with a bound for every call that neither opens nor closes a session. */
  public Endpoint withTimeout(Duration bound) {
    return new Endpoint(target, tlsCa, tlsCert, tlsKey, token, connectTimeout, bound, plain);
  }

  /** Returns this endpoint, with each list as a call of its own or over the session's stream. */
  public Endpoint withPlain(boolean on) {
    return new Endpoint(target, tlsCa, tlsCert, tlsKey, token, connectTimeout, timeout, on);
  }

  /** Returns whether this endpoint is plain text and its port speaks TLS, with any certificate. */
  boolean lacksTls() {
    if (tlsCa != null || target.startsWith(UNIX)) {
      return false;
    }
    int colon = target.lastIndexOf(':');
    String host = target.substring(0, colon).replaceAll("[\\[\\]]", "");
    int port = Integer.parseInt(target.substring(colon + 1));
    try {
      SSLContext context = SSLContext.getInstance("TLS");
      context.init(null, InsecureTrustManagerFactory.INSTANCE.getTrustManagers(), null);
      try (SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket()) {
        socket.setSoTimeout(PROBE_MILLISECONDS);
        socket.connect(new InetSocketAddress(host, port), PROBE_MILLISECONDS);
        socket.startHandshake();
        return true;
      }
    } catch (IOException | GeneralSecurityException error) {
      return false;
    }
  }

  /**
   * Opens a connection, for generated stubs such as {@code MliServiceGrpc}; the caller shuts it
   * down.
   *
   * @throws IllegalArgumentException when a TLS file cannot be read as such
   */
  public ManagedChannel channel() {
    NettyChannelBuilder builder = target.startsWith(UNIX) ? unix() : tcp();
    if (!token.isEmpty()) {
      Metadata headers = new Metadata();
      headers.put(AUTHORIZATION, "Bearer " + token);
      builder.intercept(MetadataUtils.newAttachHeadersInterceptor(headers));
    }
    return builder.maxInboundMessageSize(Integer.MAX_VALUE).build();
  }

  private NettyChannelBuilder unix() {
    return NettyChannelBuilder.forAddress(
            UnixDomainSocketAddress.of(target.substring(UNIX.length())))
        .eventLoopGroup(UnixSockets.LOOP)
        .channelType(NioDomainSocketChannel.class, UnixDomainSocketAddress.class)
        .withOption(ChannelOption.SO_KEEPALIVE, null) // TCP's; Unix sockets have none.
        .overrideAuthority("localhost")
        .usePlaintext();
  }

  private NettyChannelBuilder tcp() {
    NettyChannelBuilder builder = NettyChannelBuilder.forTarget(target);
    return tlsCa == null ? builder.usePlaintext() : builder.sslContext(tls());
  }

  private SslContext tls() {
    try {
      SslContextBuilder context = GrpcSslContexts.forClient().trustManager(tlsCa.toFile());
      return tlsCert == null
          ? context.build()
          : context.keyManager(tlsCert.toFile(), tlsKey.toFile()).build();
    } catch (SSLException error) {
      throw new IllegalArgumentException("tlsCa, tlsCert, tlsKey: " + error.getMessage(), error);
    }
  }

  /** Names target, TLS and token, but not the token's text. */
  @Override
  public String toString() {
    String tls = tlsCa == null ? "" : ", TLS";
    return "Endpoint[" + target + tls + (token.isEmpty() ? "" : ", token") + "]";
  }

  /** The thread that serves all Unix sockets, made when the first one is opened. */
  private static final class UnixSockets {
    static final EventLoopGroup LOOP =
        new NioEventLoopGroup(1, new DefaultThreadFactory("nnpa-unix", true));
  }
}
