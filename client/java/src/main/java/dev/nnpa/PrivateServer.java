// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** {@code nnpa-server} as a child, on a Unix socket that only this user can reach. */
final class PrivateServer implements AutoCloseable {
  private static final String READY = "nnpa-server listening on ";
  private static final long STOP_SECONDS = 10;
  private static final int TAIL_LINES = 3;
  private static final String ANOTHER_SERVER =
      "Or use a server that runs already: Session.connect(\"host:port\").";

  private final Process process;
  private final Path folder;
  private final String target;

  private PrivateServer(Process process, Path folder, String target) {
    this.process = process;
    this.folder = folder;
    this.target = target;
  }

  /** Starts the server of the PATH, which ends with this process, and waits until it listens. */
  static PrivateServer start(String program) {
    try {
      Path folder = Files.createTempDirectory("nnpa-");
      try {
        return start(program, folder);
      } catch (IOException error) {
        List<String> lines = log(folder);
        remove(folder);
        List<String> last = lines.subList(Math.max(0, lines.size() - TAIL_LINES), lines.size());
        throw new IOException(error.getMessage() + " " + String.join(" / ", last), error);
      }
    } catch (IOException error) {
      String text = "the private server did not start: " + error.getMessage().strip();
      throw new TransportException("UNAVAILABLE", text, ANOTHER_SERVER, error);
    }
  }

  private static PrivateServer start(String program, Path folder) throws IOException {
    String listen = "unix:" + folder.resolve("nnpa.sock");
    Process process = process(program, listen, folder.resolve("server.log"));
    String line = process.inputReader().readLine();
    if (line == null || !line.startsWith(READY)) {
      process.destroyForcibly();
      throw new IOException("it ended, or said " + line);
    }
    return new PrivateServer(process, folder, line.substring(READY.length()).strip());
  }

  private static Process process(String program, String listen, Path log) throws IOException {
    try {
      return new ProcessBuilder(program, "--listen", listen, "--exit-with-parent")
          .redirectError(log.toFile())
          .start();
    } catch (IOException error) {
      String install = "`pip install '.[server]'` in a clone of nnpa brings nnpa-server";
      throw new IOException(error.getMessage() + ": " + install + " to the PATH", error);
    }
  }

  private static List<String> log(Path folder) throws IOException {
    Path log = folder.resolve("server.log");
    return Files.exists(log) ? Files.readAllLines(log) : List.of();
  }

  private static void remove(Path folder) throws IOException {
    for (String name : List.of("server.log", "nnpa.sock", "nnpa.sock.plain")) {
      Files.deleteIfExists(folder.resolve(name));
    }
    Files.delete(folder);
  }

  /** Returns the server's address. */
  String target() {
    return target;
  }

  /** Ends the server and removes its socket. */
  @Override
  public void close() {
    process.destroy();
    try {
      if (!process.waitFor(STOP_SECONDS, TimeUnit.SECONDS)) {
        process.destroyForcibly().waitFor();
      }
      remove(folder);
    } catch (InterruptedException error) {
      process.destroyForcibly();
      Thread.currentThread().interrupt();
    } catch (IOException error) {
      System.getLogger("dev.nnpa").log(System.Logger.Level.DEBUG, folder + " is left", error);
    }
  }
}
