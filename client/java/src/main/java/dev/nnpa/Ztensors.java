// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.AllochelperZtensor;
import dev.nnpa.zdnn.v1.FreeZtensorBuffer;
import dev.nnpa.zdnn.v1.InitQuantizedZtensor;
import dev.nnpa.zdnn.v1.InitZtensor;
import dev.nnpa.zdnn.v1.Operation;
import dev.nnpa.zdnn.v1.TensorDesc;
import dev.nnpa.zdnn.v1.TensorRef;
import dev.nnpa.zdnn.v1.ZdnnStatus;
import java.util.ArrayList;
import java.util.List;

/**
 * Creates, allocates and frees ztensors.
 *
 * <p>A ztensor without a buffer lives in the client and travels with the few operations that take
 * one; allocation creates it in the session.
 *
 * <p>Source: zDNN API Reference 1.2.0, the function of the same name, for example zdnn_init_ztensor
 * for initZtensor.
 */
public final class Ztensors {
  private Ztensors() {}

  /** Returns a ztensor without a buffer. */
  public static Ztensor initZtensor(
      Session session, TensorDesc preTfrmdDesc, TensorDesc tfrmdDesc) {
    return new Ztensor(session.guest, structure(preTfrmdDesc, tfrmdDesc).build(), 0);
  }

  private static dev.nnpa.zdnn.v1.Ztensor.Builder structure(TensorDesc pre, TensorDesc tfrmd) {
    return dev.nnpa.zdnn.v1.Ztensor.newBuilder()
        .setPreTransformedDesc(pre)
        .setTransformedDesc(tfrmd)
        .setBufferSize(0)
        .setNullBuffer(true);
  }

  /** Returns a quantized ztensor without a buffer; it keeps 1/scale, and 0 for scale 0. */
  public static Ztensor initQuantizedZtensor(
      Session session, TensorDesc preTfrmdDesc, TensorDesc tfrmdDesc, float scale, float offset) {
    dev.nnpa.zdnn.v1.Ztensor.Builder structure = structure(preTfrmdDesc, tfrmdDesc);
    structure.setRecScale(scale == 0 ? scale : 1 / scale).setOffset(offset);
    Ztensor ztensor = new Ztensor(session.guest, structure.build(), 0);
    ztensor.scale = scale;
    return ztensor;
  }

  /** Returns a ztensor with zero-filled sticks; throws as {@link #allochelperZtensor}. */
  public static Ztensor initZtensorWithMalloc(
      Session session, TensorDesc preTfrmdDesc, TensorDesc tfrmdDesc) {
    return allochelperZtensor(initZtensor(session, preTfrmdDesc, tfrmdDesc));
  }

  /** Returns a quantized ztensor with zero-filled sticks; throws as {@link #allochelperZtensor}. */
  public static Ztensor initQuantizedZtensorWithMalloc(
      Session session, TensorDesc preTfrmdDesc, TensorDesc tfrmdDesc, float scale, float offset) {
    return allochelperZtensor(
        initQuantizedZtensor(session, preTfrmdDesc, tfrmdDesc, scale, offset));
  }

  /**
   * Allocates zero-filled sticks, and returns the ztensor. Throws {@link ZdnnException}:
   * ZDNN_INVALID_FORMAT, ZDNN_INVALID_LAYOUT, ZDNN_INVALID_TYPE, ZDNN_INVALID_SHAPE,
   * ZDNN_ALLOCATION_FAILURE.
   */
  public static Ztensor allochelperZtensor(Ztensor ztensor) {
    Verb verb = new Verb("allochelper_ztensor", ztensor);
    List<Verb> calls = new ArrayList<>();
    if (ztensor.id() == 0) {
      Verb creation = new Verb("init_ztensor", verb.guest);
      creation.operation = creation(ztensor, verb.guest.newId());
      calls.add(creation);
      verb.created.add(ztensor);
    }
    AllochelperZtensor.Builder arm = AllochelperZtensor.newBuilder().setZtensor(ztensor.ref());
    verb.operation = Operation.newBuilder().setAllochelperZtensor(arm).build();
    calls.add(verb);
    verb.guest.submit(calls);
    return ztensor;
  }

  /** Gives the ztensor its id, and returns the operation that creates it in the session. */
  private static Operation creation(Ztensor ztensor, long id) {
    TensorDesc pre = ztensor.preTransformedDesc();
    TensorDesc tfrmd = ztensor.transformedDesc();
    ztensor.create(id);
    Operation.Builder operation = Operation.newBuilder();
    if (ztensor.scale == null) {
      InitZtensor.Builder arm = operation.getInitZtensorBuilder().setZtensor(id);
      arm.setPreTransformedDesc(pre).setTransformedDesc(tfrmd);
    } else {
      InitQuantizedZtensor.Builder arm = operation.getInitQuantizedZtensorBuilder().setZtensor(id);
      arm.setPreTransformedDesc(pre).setTransformedDesc(tfrmd);
      arm.setScale(ztensor.scale).setOffset(ztensor.offset());
    }
    return operation.build();
  }

  /**
   * Frees the sticks; the session forgets the tensor, the structure stays. Throws {@link
   * ZdnnException}: ZDNN_INVALID_BUFFER when there are none.
   */
  public static void freeZtensorBuffer(Ztensor ztensor) {
    Verb verb = new Verb("free_ztensor_buffer", ztensor);
    verb.read =
        result -> {
          if (result.getZdnnStatus() == ZdnnStatus.ZDNN_OK_VALUE && ztensor.id() != 0) {
            verb.guest.untrack(ztensor);
          }
        };
    verb.run(freeing(ztensor.ref()));
  }

  /** Returns the operation that frees a tensor. */
  static Operation.Builder freeing(TensorRef ztensor) {
    FreeZtensorBuffer.Builder arm = FreeZtensorBuffer.newBuilder().setZtensor(ztensor);
    return Operation.newBuilder().setFreeZtensorBuffer(arm);
  }

  /** Returns whether the ztensor carries a scale. */
  public static boolean isQuantizedZtensor(Ztensor ztensor) {
    return ztensor.recScale() != 0;
  }
}
