// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

/**
 * Macros of {@code zdnn.h} that are no enumeration of the wire contract, with zDNN's own names and
 * numbers.
 *
 * <p>Source: zDNN API Reference 1.2.0, "Common Types and Structs"; {@code zdnn.h} of zDNN 1.2.0.
 */
public final class Constants {
  /** The version of zDNN that this library describes. */
  public static final String ZDNN_VERSION = "1.2.0";

  /** The same, 0x00MMmmpp. */
  public static final int ZDNN_VERNUM = 0x010200;

  /** Place of the RNN type in a concatenation info. */
  public static final int BITSHIFT_RNN_TYPE = 24;

  /** Place of the previous layer in a concatenation info. */
  public static final int BITSHIFT_PREV_LAYER = 16;

  /** Place of the usage in a concatenation info. */
  public static final int BITSHIFT_USAGE = 8;

  /** Gates F, I, C, O. */
  public static final int RNN_TYPE_LSTM = 0;

  /** Gates Z, R, H. */
  public static final int RNN_TYPE_GRU = 1 << BITSHIFT_RNN_TYPE;

  /** The previous layer has one direction. */
  public static final int PREV_LAYER_UNI = 0;

  /** There is no previous layer. */
  public static final int PREV_LAYER_NONE = PREV_LAYER_UNI;

  /** The previous layer is bidirectional. */
  public static final int PREV_LAYER_BIDIR = 1 << BITSHIFT_PREV_LAYER;

  /** Input weights. */
  public static final int USAGE_WEIGHTS = 0;

  /** Hidden weights. */
  public static final int USAGE_HIDDEN_WEIGHTS = 1 << BITSHIFT_USAGE;

  /** Input biases. */
  public static final int USAGE_BIASES = 2 << BITSHIFT_USAGE;

  /** Hidden biases. */
  public static final int USAGE_HIDDEN_BIASES = 3 << BITSHIFT_USAGE;

  /** DLFLOAT16 in a mask of types. */
  public static final int QUERY_DATATYPE_INTERNAL1 = 0x8000;

  /** FP32 in a mask of types. */
  public static final int QUERY_DATATYPE_BINARY_FP32 = 0x0200;

  /** INT8 in a mask of types. */
  public static final int QUERY_DATATYPE_BINARY_INT8 = 0x0080;

  /** INT32 in a mask of types. */
  public static final int QUERY_DATATYPE_BINARY_INT32 = 0x0020;

  /** 4D-feature in a mask of layout formats. */
  public static final int QUERY_LAYOUTFMT_4DFEATURE = 0x80000000;

  /** 4D-kernel in a mask of layout formats. */
  public static final int QUERY_LAYOUTFMT_4DKERNEL = 0x40000000;

  /** 4D-weights in a mask of layout formats. */
  public static final int QUERY_LAYOUTFMT_4DWEIGHTS = 0x20000000;

  /** 4D-generic in a mask of layout formats. */
  public static final int QUERY_LAYOUTFMT_4DGENERIC = 0x00000001;

  /** IEEE 16-bit in a mask of conversions. */
  public static final int QUERY_BFPFMT_TINY = 0x4000;

  /** IEEE 32-bit in a mask of conversions. */
  public static final int QUERY_BFPFMT_SHORT = 0x2000;

  private Constants() {}
}
