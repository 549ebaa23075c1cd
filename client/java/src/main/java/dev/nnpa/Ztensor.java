// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.OperationResult;
import dev.nnpa.zdnn.v1.TensorDesc;
import dev.nnpa.zdnn.v1.TensorRef;
import java.nio.ByteBuffer;

/**
 * A {@code zdnn_ztensor}: the structure here, the sticks in the session.
 *
 * <p>Made by {@link Session#ztensor}, {@link Ztensors}, or an operation. The fields are C's,
 * read-only. When the object is dropped, the session forgets the tensor with a later call.
 */
public final class Ztensor {
  final Guest guest;

  /** Of zdnn_init_quantized_ztensor; the structure has the reciprocal only. */
  Float scale;

  private long id;
  private int flags;
  private dev.nnpa.zdnn.v1.Ztensor structure;
  private String missing = "";

  /** {@code structure} is null until an answer sets it, {@code id} 0 without a buffer. */
  Ztensor(Guest guest, dev.nnpa.zdnn.v1.Ztensor structure, long id) {
    this.guest = guest;
    this.structure = structure;
    this.id = id;
  }

  long id() {
    return id;
  }

  void create(long newId) {
    id = newId;
  }

  void keepFlags(OperationResult result) {
    flags = result.getFpFlags();
  }

  /** Replaces the structure; the user's own descriptor stays as it is. */
  void update(dev.nnpa.zdnn.v1.Ztensor fresh) {
    dev.nnpa.zdnn.v1.Ztensor.Builder next = fresh.toBuilder().clearContents();
    if (structure != null) {
      next.setPreTransformedDesc(structure.getPreTransformedDesc());
    }
    structure = next.build();
  }

  /** Records that the session does not hold this ztensor, and why. */
  void invalidate(String why) {
    id = 0;
    if (structure == null) {
      missing = why;
    }
  }

  /** Records that the session has freed this ztensor. */
  void lose() {
    id = 0;
    structure = structure().toBuilder().setNullBuffer(true).build();
  }

  /** Returns the reference for an operation; without a buffer the structure travels along. */
  TensorRef ref() {
    TensorRef.Builder ref = TensorRef.newBuilder();
    return (id != 0 ? ref.setId(id) : ref.setInlineZtensor(structure())).build();
  }

  /** Returns the structure without contents; runs the calls of an open pipeline if need be. */
  public dev.nnpa.zdnn.v1.Ztensor structure() {
    if (structure == null && missing.isEmpty()) {
      guest.flush();
    }
    if (structure == null) {
      throw new IllegalStateException("ztensor: does not exist, " + missing);
    }
    return structure;
  }

  /** Returns the user's view of the tensor. */
  public TensorDesc preTransformedDesc() {
    return structure().getPreTransformedDesc();
  }

  /** Returns the accelerator's view of the tensor. */
  public TensorDesc transformedDesc() {
    return structure().getTransformedDesc();
  }

  /** Returns the size of the sticks, bytes; 0 before they are allocated. */
  public long bufferSize() {
    return structure().getBufferSize();
  }

  /** Returns whether the ztensor has sticks; C's buffer is NULL if not. */
  public boolean hasBuffer() {
    structure();
    return held();
  }

  /** Returns whether the session holds sticks, by the last answer. */
  boolean held() {
    return id != 0 && structure != null && !structure.getNullBuffer();
  }

  /** Returns whether the sticks hold data. */
  public boolean isTransformed() {
    return structure().getIsTransformed();
  }

  /** Returns the reciprocal of the quantization scale; 0 means not quantized. */
  public float recScale() {
    return structure().getRecScale();
  }

  /** Returns the quantization offset. */
  public float offset() {
    return structure().getOffset();
  }

  /** Returns the IEEE flags that the last transform raised, a sum of {@code FpFlags}. */
  public int flags() {
    structure();
    return flags;
  }

  /** Fetches the data of an FP32 tensor, dense: {@link Zdnn#transformOrigtensor(Ztensor)}. */
  public float[] floats() {
    return Zdnn.transformOrigtensor(this).floats();
  }

  /** Fetches the sticks, cells little-endian. */
  public ByteBuffer readSticks() {
    return Transfer.readSticks(this);
  }

  /** Replaces the sticks: {@link #bufferSize} bytes, cells little-endian, marked as transformed. */
  public void writeSticks(ByteBuffer sticks) {
    Transfer.writeSticks(this, sticks);
  }

  /** Returns layout, sizes, type and state, in one line. */
  @Override
  public String toString() {
    if (structure == null) {
      return "Ztensor[" + (missing.isEmpty() ? "pending" : missing) + "]";
    }
    float scale = structure.getRecScale();
    return String.format(
        "Ztensor[%s as %s, %s%s]",
        Descriptors.describe(structure.getPreTransformedDesc()),
        Descriptors.describe(structure.getTransformedDesc()),
        state(),
        scale == 0 ? "" : ", rec_scale " + scale + ", offset " + structure.getOffset());
  }

  /** Describes the buffer: "4096 bytes, transformed", "freed" or "no buffer". */
  private String state() {
    if (structure.getNullBuffer()) {
      return structure.getBufferSize() == 0 ? "no buffer" : "freed";
    }
    String data = structure.getIsTransformed() ? "transformed" : "not transformed";
    return Long.toUnsignedString(structure.getBufferSize()) + " bytes, " + data;
  }
}
