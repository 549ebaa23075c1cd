// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Message;
import dev.nnpa.mli.v1.BuildOptions;
import dev.nnpa.mli.v1.ElType;
import dev.nnpa.mli.v1.Kernel;
import dev.nnpa.mli.v1.KernelResult;
import dev.nnpa.mli.v1.MliServiceGrpc;
import dev.nnpa.mli.v1.MliStatus;
import dev.nnpa.mli.v1.Output;
import dev.nnpa.mli.v1.Place;
import dev.nnpa.mli.v1.RnnCellCfg;
import dev.nnpa.mli.v1.RnnMode;
import dev.nnpa.mli.v1.RunKernelRequest;
import dev.nnpa.mli.v1.TensorRef;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * embARC MLI's fixed-point kernels, bit for bit: a build of the library on a session, one method
 * per function of its documentation without {@code mli_}. Tensors come in C's order; an output that
 * is null is made. A status that is an error is an {@link MliException}.
 */
public final class Mli {
  private static final System.Logger LOG = System.getLogger("dev.nnpa.mli");

  private final Guest guest;
  private final BuildOptions options;
  private Batch batch;

  /** One call of a kernel: its arm, its tensors by field, its configuration or null. */
  private record Call(String kernel, Map<String, MliTensor> tensors, RnnCellCfg cfg) {}

  /** A library on a session, of the default build. */
  public Mli(Session session) {
    this(session, BuildOptions.getDefaultInstance());
  }

  /** A library on a session, built with these options. */
  public Mli(Session session, BuildOptions options) {
    this.guest = session.guest();
    this.options = options;
  }

  /**
   * Kernels that leave in one request, as a {@link Pipeline}: outputs are filled when it has run,
   * and may be inputs at once.
   */
  public final class Batch implements AutoCloseable {
    private final List<Call> calls = new ArrayList<>();

    private Batch() {}

    /** Runs what is queued; {@link MliException#kernelIndex} of the first error is its place. */
    public void run() {
      List<Call> queued = List.copyOf(calls);
      calls.clear();
      if (!queued.isEmpty()) {
        send(queued, true);
      }
    }

    @Override
    public void close() {
      batch = null;
    }
  }

  /** Opens a batch; until it is closed, kernels of this library queue in it. */
  public Batch batch() {
    if (batch != null) {
      throw new IllegalStateException("batch: one is open in this library already");
    }
    batch = new Batch();
    return batch;
  }

  /**
   * mli_krn_fully_connected_fx8: returns out = weights * in + bias. The fractional bits of out are
   * an input: it is a tensor of {@link MliTensor#empty(int, ElType, int)}.
   */
  public MliTensor krnFullyConnectedFx8(
      MliTensor in, MliTensor weights, MliTensor bias, MliTensor out) {
    return fullyConnected("krn_fully_connected_fx8", in, weights, bias, out);
  }

  /** mli_krn_fully_connected_fx16; see {@link #krnFullyConnectedFx8}. */
  public MliTensor krnFullyConnectedFx16(
      MliTensor in, MliTensor weights, MliTensor bias, MliTensor out) {
    return fullyConnected("krn_fully_connected_fx16", in, weights, bias, out);
  }

  /**
   * mli_krn_fully_connected_fx8w16d, 8-bit weights and bias and 16-bit data; see {@link
   * #krnFullyConnectedFx8}.
   */
  public MliTensor krnFullyConnectedFx8w16d(
      MliTensor in, MliTensor weights, MliTensor bias, MliTensor out) {
    return fullyConnected("krn_fully_connected_fx8w16d", in, weights, bias, out);
  }

  private MliTensor fullyConnected(
      String kernel, MliTensor in, MliTensor weights, MliTensor bias, MliTensor out) {
    return submit(kernel, null, out, "in", in, "weights", weights, "bias", bias, "out", out);
  }

  /** mli_krn_lstm_cell_fx8: returns the outputs, and writes cell and, unless it is null, irTsr. */
  public MliTensor krnLstmCellFx8(
      MliTensor in,
      MliTensor prevOut,
      MliTensor weights,
      MliTensor bias,
      RnnCellCfg cfg,
      MliTensor irTsr,
      MliTensor cell,
      MliTensor out) {
    return lstm("krn_lstm_cell_fx8", in, prevOut, weights, bias, cfg, irTsr, cell, out);
  }

  /** mli_krn_lstm_cell_fx16; see {@link #krnLstmCellFx8}. */
  public MliTensor krnLstmCellFx16(
      MliTensor in,
      MliTensor prevOut,
      MliTensor weights,
      MliTensor bias,
      RnnCellCfg cfg,
      MliTensor irTsr,
      MliTensor cell,
      MliTensor out) {
    return lstm("krn_lstm_cell_fx16", in, prevOut, weights, bias, cfg, irTsr, cell, out);
  }

  /** mli_krn_lstm_cell_fx8w16d, 8-bit weights and bias; see {@link #krnLstmCellFx8}. */
  public MliTensor krnLstmCellFx8w16d(
      MliTensor in,
      MliTensor prevOut,
      MliTensor weights,
      MliTensor bias,
      RnnCellCfg cfg,
      MliTensor irTsr,
      MliTensor cell,
      MliTensor out) {
    return lstm("krn_lstm_cell_fx8w16d", in, prevOut, weights, bias, cfg, irTsr, cell, out);
  }

  private MliTensor lstm(
      String kernel,
      MliTensor in,
      MliTensor prevOut,
      MliTensor weights,
      MliTensor bias,
      RnnCellCfg cfg,
      MliTensor irTsr,
      MliTensor cell,
      MliTensor out) {
    require("in", in);
    require("prev_out", prevOut);
    require("cell", cell);
    ElType data = dataOf(kernel);
    int size = cell.count();
    MliTensor between = irTsr == null ? MliTensor.empty(4 * size, data, 0) : irTsr;
    MliTensor result =
        out == null ? MliTensor.empty(size * frames(in, cfg), data, prevOut.fracBits()) : out;
    return submit(
        kernel, cfg, result, "in", in, "prev_out", prevOut, "weights", weights, "bias", bias,
        "cell", cell, "out", result, "cfg.ir_tsr", between);
  }

  /**
   * mli_krn_basic_rnn_cell_fx8: returns out = act(weights * [in, prevOut] + bias), and writes irTsr
   * unless it is null. An out that is null is made with the fractional bits of prevOut.
   */
  public MliTensor krnBasicRnnCellFx8(
      MliTensor in,
      MliTensor prevOut,
      MliTensor weights,
      MliTensor bias,
      RnnCellCfg cfg,
      MliTensor irTsr,
      MliTensor out) {
    return basicRnn("krn_basic_rnn_cell_fx8", in, prevOut, weights, bias, cfg, irTsr, out);
  }

  /** mli_krn_basic_rnn_cell_fx16; see {@link #krnBasicRnnCellFx8}. */
  public MliTensor krnBasicRnnCellFx16(
      MliTensor in,
      MliTensor prevOut,
      MliTensor weights,
      MliTensor bias,
      RnnCellCfg cfg,
      MliTensor irTsr,
      MliTensor out) {
    return basicRnn("krn_basic_rnn_cell_fx16", in, prevOut, weights, bias, cfg, irTsr, out);
  }

  /** mli_krn_basic_rnn_cell_fx8w16d, 8-bit weights and bias; see {@link #krnBasicRnnCellFx8}. */
  public MliTensor krnBasicRnnCellFx8w16d(
      MliTensor in,
      MliTensor prevOut,
      MliTensor weights,
      MliTensor bias,
      RnnCellCfg cfg,
      MliTensor irTsr,
      MliTensor out) {
    return basicRnn("krn_basic_rnn_cell_fx8w16d", in, prevOut, weights, bias, cfg, irTsr, out);
  }

  private MliTensor basicRnn(
      String kernel,
      MliTensor in,
      MliTensor prevOut,
      MliTensor weights,
      MliTensor bias,
      RnnCellCfg cfg,
      MliTensor irTsr,
      MliTensor out) {
    require("in", in);
    require("prev_out", prevOut);
    require("bias", bias);
    ElType data = dataOf(kernel);
    int size = bias.count();
    MliTensor between = irTsr == null ? MliTensor.empty(size, data, 0) : irTsr;
    MliTensor result =
        out == null ? MliTensor.empty(size * frames(in, cfg), data, prevOut.fracBits()) : out;
    return submit(
        kernel, cfg, result, "in", in, "prev_out", prevOut, "weights", weights, "bias", bias,
        "out", result, "cfg.ir_tsr", between);
  }

  /** mli_krn_tanh_fx8: returns the hyperbolic tangent of each element; in place when out is in. */
  public MliTensor krnTanhFx8(MliTensor in, MliTensor out) {
    return activation("krn_tanh_fx8", in, out);
  }

  /** mli_krn_tanh_fx16; see {@link #krnTanhFx8}. */
  public MliTensor krnTanhFx16(MliTensor in, MliTensor out) {
    return activation("krn_tanh_fx16", in, out);
  }

  /** mli_krn_sigm_fx8: returns the sigmoid of each element; in place when out is in. */
  public MliTensor krnSigmFx8(MliTensor in, MliTensor out) {
    return activation("krn_sigm_fx8", in, out);
  }

  /** mli_krn_sigm_fx16; see {@link #krnSigmFx8}. */
  public MliTensor krnSigmFx16(MliTensor in, MliTensor out) {
    return activation("krn_sigm_fx16", in, out);
  }

  private MliTensor activation(String kernel, MliTensor in, MliTensor out) {
    require("in", in);
    MliTensor result = out == null ? MliTensor.empty(in.room(), dataOf(kernel), 0) : out;
    return submit(kernel, null, result, "in", in, "out", result);
  }

  /** mli_hlp_convert_tensor: converts to the type and parameters of dst, and returns it. */
  public MliTensor hlpConvertTensor(MliTensor src, MliTensor dst) {
    return submit("hlp_convert_tensor", null, dst, "src", src, "dst", dst);
  }

  /** Returns the type of a kernel's data, which its name ends with. */
  private static ElType dataOf(String kernel) {
    return kernel.endsWith("_fx8") ? ElType.MLI_EL_FX_8 : ElType.MLI_EL_FX_16;
  }

  /** Returns how many frames give an output each. */
  private static int frames(MliTensor in, RnnCellCfg cfg) {
    boolean each = cfg.getMode() == RnnMode.RNN_BATCH_TO_BATCH && !in.shape().isEmpty();
    return each ? in.shape().get(0) : 1;
  }

  private static void require(String field, Object tensor) {
    if (tensor == null) {
      throw new IllegalArgumentException(field + ": null, expected an MliTensor");
    }
  }

  /** Runs a call now, or queues it; tensors are pairs of field and tensor. Returns {@code out}. */
  private MliTensor submit(String kernel, RnnCellCfg cfg, MliTensor out, Object... tensors) {
    Map<String, MliTensor> named = new LinkedHashMap<>();
    for (int i = 0; i < tensors.length; i += 2) {
      String field = (String) tensors[i];
      require(field, tensors[i + 1]);
      named.put(field, (MliTensor) tensors[i + 1]);
    }
    Call call = new Call(kernel, named, cfg);
    if (batch == null) {
      send(List.of(call), false);
    } else {
      batch.calls.add(call);
    }
    return out;
  }

  private void send(List<Call> calls, boolean isBatch) {
    RunKernelRequest.Builder request = RunKernelRequest.newBuilder().setOptions(options);
    Map<MliTensor, Place> places = new IdentityHashMap<>();
    for (Call call : calls) {
      request.addKernels(encode(request.getKernelsCount(), call, places));
    }
    List<KernelResult> results =
        guest
            .transport
            .call(MliServiceGrpc::newBlockingStub, stub -> stub.runKernel(request.build()))
            .getResultsList();
    for (int i = 0; i < results.size(); i++) {
      Call call = calls.get(i);
      KernelResult result = results.get(i);
      if (result.getMliStatus() != MliStatus.MLI_STATUS_OK) {
        throw new MliException(call.kernel, result, isBatch ? i : -1);
      }
      for (Output output : result.getOutputsList()) {
        call.tensors.get(output.getField()).update(output.getTensor());
      }
      remark(call.kernel, result);
    }
  }

  /** Logs what is to be said about a call that succeeds. */
  private static void remark(String kernel, KernelResult result) {
    List<String> remarks = new ArrayList<>(result.getMessagesList());
    if (result.getAccumulatorOverflow()) {
      remarks.add("a partial sum left the accumulator, the result is undefined in MLI");
    }
    if (result.hasRefusal()) {
      remarks.add("nothing is written: " + result.getRefusal().getText());
    }
    remarks.forEach(text -> LOG.log(System.Logger.Level.WARNING, "mli_" + kernel + ": " + text));
  }

  /** Returns a call's message; arms and fields are found by their names. */
  private static Kernel encode(int index, Call call, Map<MliTensor, Place> places) {
    Kernel.Builder kernel = Kernel.newBuilder();
    FieldDescriptor arm = Kernel.getDescriptor().findFieldByName(call.kernel);
    Message.Builder message = kernel.newBuilderForField(arm);
    RnnCellCfg.Builder cfg = call.cfg == null ? null : call.cfg.toBuilder();
    call.tensors.forEach(
        (field, tensor) -> {
          TensorRef ref = ref(index, field, tensor, places);
          if (field.equals("cfg.ir_tsr")) {
            cfg.setIrTsr(ref);
          } else {
            message.setField(arm.getMessageType().findFieldByName(field), ref);
          }
        });
    if (cfg != null) {
      message.setField(arm.getMessageType().findFieldByName("cfg"), cfg.build());
    }
    return kernel.setField(arm, message.build()).build();
  }

  /** Returns how a call names a tensor, which a request has once: later uses refer to the first. */
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
