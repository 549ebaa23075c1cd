// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.mli.v1.BuildOptions;
import dev.nnpa.mli.v1.KernelResult;
import dev.nnpa.mli.v1.MliServiceGrpc;
import dev.nnpa.mli.v1.MliStatus;
import dev.nnpa.mli.v1.Output;
import dev.nnpa.mli.v1.Place;
import dev.nnpa.mli.v1.RunKernelRequest;
import java.util.ArrayList;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;

/**
 * embARC MLI's fixed-point kernels, bit for bit: a build of the library on a session, one method
 * per function of its documentation without {@code mli_}. Tensors come in C's order; an output that
 * is null is created. A status that is an error is an {@link MliException}.
 */
public final class Mli extends MliKernels {
  private static final System.Logger LOG = System.getLogger("dev.nnpa.mli");

  private final Guest guest;
  private final BuildOptions options;
  private Batch batch;

  /** A library on a session, of the default build. */
  public Mli(Session session) {
    this(session, BuildOptions.getDefaultInstance());
  }

  /** A library on a session, built with these options. */
  public Mli(Session session, BuildOptions options) {
    this.guest = session.guest;
    this.options = options;
  }

  /**
   * Kernels that leave in one request, as a {@link Pipeline}: outputs are filled when it has run,
   * and may be inputs at once.
   */
  public final class Batch implements AutoCloseable {
    private final List<MliCall> calls = new ArrayList<>();

    private Batch() {}

    /** Runs the queue; {@link MliException#kernelIndex} of the first error is its index. */
    public void run() {
      List<MliCall> queued = List.copyOf(calls);
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
      throw new IllegalStateException("batch: one is open in this library already, close it first");
    }
    batch = new Batch();
    return batch;
  }

  @Override
  MliTensor submit(MliCall call) {
    if (batch == null) {
      send(List.of(call), false);
    } else {
      batch.calls.add(call);
    }
    return call.output();
  }

  private void send(List<MliCall> calls, boolean isBatch) {
    RunKernelRequest.Builder request = RunKernelRequest.newBuilder().setOptions(options);
    Map<MliTensor, Place> places = new IdentityHashMap<>();
    for (MliCall call : calls) {
      request.addKernels(call.encode(request.getKernelsCount(), places));
    }
    List<KernelResult> results =
        guest
            .transport
            .call(MliServiceGrpc::newBlockingStub, stub -> stub.runKernel(request.build()))
            .getResultsList();
    for (int i = 0; i < results.size(); i++) {
      MliCall call = calls.get(i);
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

  /** Logs the remarks on a call that succeeds. */
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
}
