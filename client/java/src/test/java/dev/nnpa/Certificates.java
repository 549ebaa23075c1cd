// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.Key;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/**
 * A certificate for 127.0.0.1 that signs itself, made by the JDK's keytool.
 *
 * @param certificate file, PEM
 * @param key file with its private key, PEM
 */
record Certificates(String certificate, String key) {
  private static final String PASSWORD = "changeit";
  private static final String WANTED =
      "-genkeypair -alias nnpa -keyalg EC -dname CN=nnpa -ext san=ip:127.0.0.1 -ext bc=ca:true"
          + " -validity 2 -storetype PKCS12";

  /** Makes both files in a folder. */
  static Certificates make(Path folder)
      throws IOException, InterruptedException, GeneralSecurityException {
    Path store = folder.resolve("store.p12");
    Path log = folder.resolve("keytool.log");
    String keytool = Path.of(System.getProperty("java.home"), "bin", "keytool").toString();
    List<String> command = new ArrayList<>(List.of(keytool, "-keystore", store.toString()));
    command.addAll(List.of(("-storepass " + PASSWORD + " " + WANTED).split(" ")));
    Process process =
        new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(log.toFile()).start();
    if (process.waitFor() != 0) {
      throw new IOException(Files.readString(log));
    }
    KeyStore keys = KeyStore.getInstance(store.toFile(), PASSWORD.toCharArray());
    Key key = keys.getKey("nnpa", PASSWORD.toCharArray());
    return new Certificates(
        pem(folder.resolve("cert.pem"), "CERTIFICATE", keys.getCertificate("nnpa").getEncoded()),
        pem(folder.resolve("key.pem"), "PRIVATE KEY", key.getEncoded()));
  }

  private static String pem(Path file, String kind, byte[] der) throws IOException {
    byte[] lines = "\n".getBytes(StandardCharsets.US_ASCII);
    String body = Base64.getMimeEncoder(64, lines).encodeToString(der);
    String text = "-----BEGIN " + kind + "-----\n" + body + "\n-----END " + kind + "-----\n";
    return Files.writeString(file, text).toString();
  }
}
