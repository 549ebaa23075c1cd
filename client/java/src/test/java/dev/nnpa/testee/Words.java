// SPDX-License-Identifier: Apache-2.0
package dev.nnpa.testee;

import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.StringJoiner;

/**
 * Hexadecimal words, most significant digit first, of which {@code XXXX*n} stands for n times XXXX.
 */
final class Words {
  private Words() {}

  /** Returns the bytes of words, each little-endian. */
  static ByteBuffer littleEndian(String text) {
    String[] tokens = text.isBlank() ? new String[0] : text.trim().split("\\s+");
    int size = 0;
    for (String token : tokens) {
      size = Math.addExact(size, Math.multiplyExact(count(token), word(token).length() / 2));
    }
    ByteBuffer bytes = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
    for (String token : tokens) {
      String word = word(token);
      long value = new BigInteger(word, 16).longValue();
      for (int left = count(token); left > 0; left--) {
        for (int place = 0; place < word.length() / 2; place++) {
          bytes.put((byte) (value >>> 8 * place));
        }
      }
    }
    return bytes.flip();
  }

  private static String word(String token) {
    return token.split("\\*")[0];
  }

  private static int count(String token) {
    int star = token.indexOf('*');
    return star < 0 ? 1 : Integer.parseInt(token.substring(star + 1));
  }

  /** Returns little-endian bytes as words of {@code width} bytes, runs as {@code word*count}. */
  static String of(ByteBuffer bytes, int width) {
    StringJoiner words = new StringJoiner(" ");
    ByteBuffer cells = bytes.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    while (cells.hasRemaining()) {
      long value = cell(cells, width);
      int count = 1;
      while (cells.hasRemaining()
          && cell(cells.duplicate().order(ByteOrder.LITTLE_ENDIAN), width) == value) {
        cell(cells, width);
        count++;
      }
      words.add(String.format("%0" + 2 * width + "X", value) + (count > 1 ? "*" + count : ""));
    }
    return words.toString();
  }

  private static long cell(ByteBuffer cells, int width) {
    return switch (width) {
      case 1 -> cells.get() & 0xFF;
      case 2 -> cells.getShort() & 0xFFFF;
      default -> cells.getInt() & 0xFFFFFFFFL;
    };
  }
}
