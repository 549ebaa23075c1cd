// SPDX-License-Identifier: Apache-2.0
package dev.nnpa.testee;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/** The Java SDK's testee, which answers frames: deploy/docs/develop/sdk-contract.md. */
public final class Testee {
  private Testee() {}

  /** Answers frames until there are no more; the server's address is in {@code ZDNN_SERVER}. */
  public static void main(String[] arguments) throws IOException {
    String target = System.getenv("ZDNN_SERVER");
    DataInputStream input = new DataInputStream(System.in);
    DataOutputStream output = new DataOutputStream(System.out);
    for (byte[] header = input.readNBytes(4); header.length == 4; header = input.readNBytes(4)) {
      int size = ByteBuffer.wrap(header).order(ByteOrder.LITTLE_ENDIAN).getInt();
      String text = new String(input.readNBytes(size), StandardCharsets.UTF_8);
      JsonObject request = JsonParser.parseString(text).getAsJsonObject();
      byte[] answer = answer(target, request).toString().getBytes(StandardCharsets.UTF_8);
      output.writeInt(Integer.reverseBytes(answer.length));
      output.write(answer);
      output.flush();
    }
  }

  private static JsonObject answer(String target, JsonObject request) {
    String kind = request.has("file") ? "file" : "local";
    JsonObject vector = request.getAsJsonObject("vector");
    JsonObject answer = new JsonObject();
    answer.add(kind, request.get(kind));
    answer.add("name", vector.get("name"));
    if (kind.equals("file")) {
      Program.run(target, vector, answer);
    } else {
      String function = request.get("local").getAsString();
      Locals.call(target, function, vector.getAsJsonObject("arguments"), answer);
    }
    return answer;
  }
}
