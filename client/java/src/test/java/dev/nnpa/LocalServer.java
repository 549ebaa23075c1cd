// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;

/**
 * An {@code nnpa-server} process for tests; it ends when it is closed, and with this process.
 *
 * <p>The command is {@code NNPA_SERVER}, or {@code nnpa-server} of the PATH.
 */
final class LocalServer implements AutoCloseable {
  private static final String READY = "nnpa-server listening on ";
  private static LocalServer shared;

  private final Path folder;
  private final Process process;
  private final List<String> targets = new ArrayList<>();

  /** Starts a server with a Unix socket, then a TCP port, and with these flags. */
  LocalServer(String... flags) {
    try {
      folder = Files.createTempDirectory("nnpa-java");
      List<String> command = new ArrayList<>();
      command.add(Optional.ofNullable(System.getenv("NNPA_SERVER")).orElse("nnpa-server"));
      command.addAll(List.of("--exit-with-parent", "--log-level", "error"));
      command.addAll(List.of("--listen", "unix:" + folder.resolve("nnpa.sock")));
      command.addAll(List.of("--listen", "127.0.0.1:0"));
      Stream.of(flags).forEach(command::add);
      process =
          new ProcessBuilder(command).redirectError(folder.resolve("server.log").toFile()).start();
      BufferedReader lines = process.inputReader();
      for (int listener = 0; listener < 2; listener++) {
        String line = lines.readLine();
        if (line == null || !line.startsWith(READY)) {
          throw new IllegalStateException(Files.readString(folder.resolve("server.log")));
        }
        targets.add(line.substring(READY.length()).strip());
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Returns the server that tests without flags of their own share. */
  static synchronized LocalServer shared() {
    if (shared == null) {
      shared = new LocalServer();
      Runtime.getRuntime().addShutdownHook(new Thread(shared::close));
    }
    return shared;
  }

  String unix() {
    return targets.get(0);
  }

  String tcp() {
    return targets.get(1);
  }

  @Override
  public void close() {
    process.destroy();
    process.onExit().join();
    for (String name : List.of("server.log", "nnpa.sock", ".")) {
      folder.resolve(name).normalize().toFile().delete();
    }
  }
}
