// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import dev.nnpa.mli.v1.ElType;
import dev.nnpa.mli.v1.Kernel;
import dev.nnpa.mli.v1.Place;
import dev.nnpa.mli.v1.RnnCellCfg;
import dev.nnpa.mli.v1.RnnMode;
import dev.nnpa.mli.v1.TensorRef;
import java.util.LinkedHashMap;
import java.util.Map;

/** One call of a kernel, by its arm: its tensors by field, its output, its configuration. */
final class MliCall {
  final String kernel;
  final Map<String, MliTensor> tensors = new LinkedHashMap<>();
  private MliTensor output;
  private ElType data;
  private int size;
  private RnnCellCfg cfg;

  MliCall(String kernel) {
    this.kernel = kernel;
  }

  /** Adds an operand; refuses null. */
  void with(String field, MliTensor tensor) {
    if (tensor == null) {
      throw new IllegalArgumentException(field + ": null, expected an MliTensor");
    }
    tensors.put(field, tensor);
  }

  /** Sets type and size of tensors that the caller leaves out; `sized` has the size. */
  void create(ElType type, MliTensor sized) {
    data = type;
    size = sized.room();
  }

  /** Adds the configuration of a recurrent cell; null for its intermediate results creates them. */
  void configure(RnnCellCfg configuration, MliTensor irTsr, int gates) {
    cfg = configuration;
    with("cfg.ir_tsr", irTsr == null ? MliTensor.empty(gates * size, data, 0) : irTsr);
  }

  /** Adds the output; creates it for null, if the kernel determines its size. */
  MliCall output(String field, MliTensor out) {
    output = out == null && data != null ? created() : out;
    with(field, output);
    return this;
  }

  private MliTensor created() {
    if (cfg == null) {
      return MliTensor.empty(size, data, 0);
    }
    boolean each = cfg.getMode() == RnnMode.RNN_BATCH_TO_BATCH;
    int frames = each ? tensors.get("in").shape().stream().findFirst().orElse(1) : 1;
    return MliTensor.empty(size * frames, data, tensors.get("prev_out").fracBits());
  }

  /** Returns the tensor that the call writes. */
  MliTensor output() {
    return output;
  }

  /** Returns the call's message; arms and fields are found by their names. */
  Kernel encode(int index, Map<MliTensor, Place> places) {
    Kernel.Builder kernelBuilder = Kernel.newBuilder();
    FieldDescriptor arm = Kernel.getDescriptor().findFieldByName(kernel);
    Message.Builder message = kernelBuilder.newBuilderForField(arm);
    tensors.forEach(
        (field, tensor) -> {
          TensorRef ref = ref(index, field, tensor, places);
          boolean results = field.equals("cfg.ir_tsr");
          message.setField(
              arm.getMessageType().findFieldByName(results ? "cfg" : field),
              results ? cfg.toBuilder().setIrTsr(ref).build() : ref);
        });
    return kernelBuilder.setField(arm, message.build()).build();
  }

  /** Returns the reference of a tensor; a request has it once, later uses refer to the first. */
  private static TensorRef ref(
      int index, String field, MliTensor tensor, Map<MliTensor, Place> places) {
    TensorRef.Builder ref = TensorRef.newBuilder();
    Place place = places.get(tensor);
    if (place == null) {
      places.put(tensor, Place.newBuilder().setKernelIndex(index).setField(field).build());
      ref.setInline(tensor.message(true));
    } else if (place.getKernelIndex() < index) {
      ref.setOutputOf(place);
    } else { // a second field of the same kernel
      ref.getSameMemoryAsBuilder()
          .setPlace(Place.newBuilder().setField(place.getField()))
          .setTensor(tensor.message(false));
    }
    return ref.build();
  }
}
