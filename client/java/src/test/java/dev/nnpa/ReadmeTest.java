// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;
import static org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder.request;

import java.io.IOException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.launcher.listeners.SummaryGeneratingListener;

/** The programs of the manual: the README and the SDK's page of the documentation. */
final class ReadmeTest {
  private static final Pattern PROGRAM = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);
  private static final Pattern NAME = Pattern.compile("(?m)^(?:public )?class (\\w+)");
  private static final Pattern PRINTS = Pattern.compile("println\\(.*\\); +// (.*)");

  /** Every program of the manual compiles, runs, and prints what its comments say. */
  @Test
  void everyProgramRuns(@TempDir Path folder) throws Exception {
    Matcher programs = PROGRAM.matcher(manual());
    int count = 0;
    while (programs.find()) {
      String program = programs.group(1);
      if (!program.contains("void main")) {
        continue;
      }
      List<String> expected =
          PRINTS.matcher(program).results().map(match -> match.group(1)).toList();
      assertEquals(expected, run(folder, program));
      assertTrue(count > 0 || program.strip().lines().count() <= 14, "ten lines and the imports");
      count++;
    }
    assertTrue(count >= 2, "programs in the manual: " + count);
  }

  /** The tests of the manual compile, and pass once per machine. */
  @Test
  void everySuitePasses(@TempDir Path folder) throws Exception {
    Matcher programs = PROGRAM.matcher(manual());
    int count = 0;
    while (programs.find()) {
      String program = programs.group(1);
      if (program.contains("void main")) {
        continue;
      }
      String name = compile(folder, program);
      URL[] place = {folder.toUri().toURL()};
      try (URLClassLoader loader = new URLClassLoader(place, ReadmeTest.class.getClassLoader())) {
        SummaryGeneratingListener listener = new SummaryGeneratingListener();
        LauncherFactory.create()
            .execute(request().selectors(selectClass(loader.loadClass(name))).build(), listener);
        assertEquals(List.of(), listener.getSummary().getFailures());
        assertEquals(2, listener.getSummary().getTestsSucceededCount());
      }
      count++;
    }
    assertEquals(1, count);
  }

  /** Returns the README and the SDK's page. */
  private static String manual() throws IOException {
    return Files.readString(Path.of("README.md"))
        + Files.readString(Path.of("../../deploy/docs/java.md"));
  }

  /** Compiles a program without a warning; returns the name of its class. */
  private static String compile(Path folder, String program) throws IOException {
    Matcher name = NAME.matcher(program);
    assertTrue(name.find(), program);
    Path source = Files.writeString(folder.resolve(name.group(1) + ".java"), program);
    String classes = System.getProperty("java.class.path");
    List<String> options =
        List.of("-Xlint:all", "-Werror", "-cp", classes, "-d", folder.toString());
    List<String> arguments = new ArrayList<>(options);
    arguments.add(source.toString());
    int code =
        ToolProvider.getSystemJavaCompiler()
            .run(null, null, null, arguments.toArray(String[]::new));
    assertEquals(0, code, program);
    return name.group(1);
  }

  /** Compiles a program and runs its main in a process of its own; returns its lines. */
  private static List<String> run(Path folder, String program)
      throws IOException, InterruptedException {
    String name = compile(folder, program);
    String classes = System.getProperty("java.class.path");
    String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
    String target = LocalServer.shared().unix();
    Path log = folder.resolve("stderr.txt");
    Path model = Path.of("src/test/resources/double.onnx");
    Files.copy(model, folder.resolve("model.onnx"), StandardCopyOption.REPLACE_EXISTING);
    Process process =
        new ProcessBuilder(java, "-cp", folder + ":" + classes, name, target)
            .directory(folder.toFile())
            .redirectError(log.toFile())
            .start();
    List<String> lines = process.inputReader().lines().toList();
    assertEquals(0, process.waitFor(), Files.readString(log));
    return lines;
  }
}
