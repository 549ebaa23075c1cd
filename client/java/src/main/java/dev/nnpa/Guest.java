// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.Diagnostic;
import dev.nnpa.zdnn.v1.DiagnosticStream;
import dev.nnpa.zdnn.v1.ExecuteRequest;
import dev.nnpa.zdnn.v1.ListTensorsRequest;
import dev.nnpa.zdnn.v1.ListTensorsResponse;
import dev.nnpa.zdnn.v1.Operation;
import dev.nnpa.zdnn.v1.OperationResult;
import dev.nnpa.zdnn.v1.SessionLimits;
import dev.nnpa.zdnn.v1.TensorRef;
import dev.nnpa.zdnn.v1.ZtensorInfo;
import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.stream.Collectors;

/**
 * State that a session shares with its ztensors: ids, the open list, ids to free. Every operation
 * leaves the client here.
 *
 * <p>Every Execute begins with freeing the tensors whose objects have been dropped since the last
 * one.
 */
final class Guest {
  private static final System.Logger LOG = System.getLogger("dev.nnpa.zdnn");

  final Transport transport;
  final String name;
  final SessionLimits limits;
  Consumer<ZdnnWarning> listener =
      warning -> LOG.log(System.Logger.Level.WARNING, warning.message());
  private final ReferenceQueue<Ztensor> unreachable = new ReferenceQueue<>();
  private final Map<Long, Living> living = new HashMap<>();
  private final Deque<Long> dropped = new ArrayDeque<>();
  private final List<Verb> queue = new ArrayList<>();
  private List<OperationResult> results;
  private long queuedBytes;
  private long lastId;
  private boolean uncertain;

  /** A weak reference to a ztensor, with its id in the session. */
  private static final class Living extends WeakReference<Ztensor> {
    private final long id;

    Living(Ztensor ztensor, ReferenceQueue<Ztensor> unreachable) {
      super(ztensor, unreachable);
      this.id = ztensor.id();
    }
  }

  Guest(Transport transport, dev.nnpa.zdnn.v1.Session session) {
    this.transport = transport;
    this.name = session.getName();
    this.limits = session.getLimits();
  }

  /** Returns an id that no tensor of the session has had. */
  synchronized long newId() {
    return ++lastId;
  }

  /** Stops tracking a tensor that the server has freed; its structure stays. */
  synchronized void untrack(Ztensor ztensor) {
    Living reference = living.remove(ztensor.id());
    if (reference != null) {
      reference.clear();
    }
    ztensor.lose();
  }

  /** Runs the calls, or queues them while a pipeline is open; throws for the first that fails. */
  synchronized void submit(List<Verb> calls) {
    if (results == null) {
      run(calls);
      return;
    }
    long size = calls.stream().mapToLong(call -> call.operation.getSerializedSize()).sum();
    if (!queue.isEmpty() && queuedBytes + size > limits.getMaxMessageBytes() / 2) {
      flush();
    }
    queue.addAll(calls);
    queuedBytes += size;
  }

  /** Runs the calls that an open pipeline has queued. */
  synchronized void flush() {
    List<Verb> calls = List.copyOf(queue);
    queue.clear();
    queuedBytes = 0;
    if (!calls.isEmpty()) {
      run(calls);
    }
  }

  /** Returns how many calls are queued. */
  int queued() {
    return queue.size();
  }

  /** Opens a pipeline, in which calls queue until its end; returns the list for their answers. */
  synchronized List<OperationResult> begin() {
    if (results != null) {
      throw new IllegalStateException(
          "pipeline: one is open in this session already, close it first");
    }
    results = new ArrayList<>();
    return results;
  }

  /** Closes a pipeline, and drops its queue. */
  synchronized void end() {
    invalidate(queue, "its pipeline was closed before it ran");
    queue.clear();
    queuedBytes = 0;
    results = null;
  }

  /** Runs operations as they are, after dropped tensors have been freed. */
  synchronized List<OperationResult> execute(List<Operation> operations) {
    if (uncertain) {
      reconcile();
    }
    collect();
    List<Long> freed = List.copyOf(dropped);
    dropped.clear();
    ExecuteRequest.Builder request = ExecuteRequest.newBuilder().setSession(name);
    for (long id : freed) {
      request.addOperations(Ztensors.freeing(TensorRef.newBuilder().setId(id).build()));
    }
    request.addAllOperations(operations);
    try {
      List<OperationResult> answers = transport.execute(request.build()).getResultsList();
      return answers.subList(freed.size(), answers.size());
    } catch (NnpaException error) {
      dropped.addAll(freed);
      if (error instanceof TransportException lost
          && Texts.NOTHING_HAS_RUN.contains(lost.reason())) {
        if (missing(lost, freed)) {
          reconcile();
          return execute(operations);
        }
      } else {
        markUncertain();
      }
      throw freed.isEmpty() ? error : error.renumbered(freed.size());
    }
  }

  private static boolean missing(TransportException error, List<Long> freed) {
    String tensor = error.metadata().getOrDefault("tensor", "0");
    return error.reason().equals("TENSOR_NOT_FOUND")
        && freed.contains(Long.parseUnsignedLong(tensor));
  }

  /** Moves the ids of unreachable ztensors to the ids to free. */
  private void collect() {
    Reference<?> reference;
    while ((reference = unreachable.poll()) != null) {
      Living gone = (Living) reference;
      if (living.remove(gone.id, gone)) {
        dropped.add(gone.id);
      }
    }
  }

  private void run(List<Verb> calls) {
    List<OperationResult> answers;
    try {
      answers = execute(calls.stream().map(call -> call.operation).toList());
    } catch (NnpaException error) {
      invalidate(calls, "the call that makes it failed");
      throw error;
    }
    for (int index = 0; index < answers.size(); index++) {
      applyResult(calls.get(index), answers.get(index));
    }
    invalidate(calls.subList(answers.size(), calls.size()), "the list of operations ended before");
    int before = results == null ? -1 : results.size();
    if (results != null) {
      results.addAll(answers);
    }
    for (int index = 0; index < answers.size(); index++) {
      throwForStatus(calls.get(index), answers.get(index), before < 0 ? -1 : before + index);
    }
  }

  static void invalidate(List<Verb> calls, String why) {
    calls.forEach(call -> call.created.forEach(ztensor -> ztensor.invalidate(why)));
  }

  /** Updates the call's ztensors from its result, and hands the result to the call. */
  private synchronized void applyResult(Verb call, OperationResult result) {
    for (ZtensorInfo info : result.getOutputsList()) {
      Ztensor ztensor = call.tensors.get(info.getOperand());
      if (ztensor != null) {
        ztensor.update(info.getZtensor());
      }
    }
    int status = result.getZdnnStatus();
    if (status != 0 && !Statuses.isWarning(status)) {
      call.created.forEach(ztensor -> ztensor.invalidate("zdnn_" + call.name + " failed"));
    }
    call.tensors.values().forEach(this::track);
    for (Diagnostic line : result.getDiagnosticsList()) {
      boolean error = line.getStream() == DiagnosticStream.DIAGNOSTIC_STREAM_STDERR;
      LOG.log(error ? System.Logger.Level.ERROR : System.Logger.Level.INFO, line.getText());
    }
    call.answer(result);
  }

  /** Tracks a ztensor that now has a buffer, and frees it when its object is dropped. */
  private void track(Ztensor ztensor) {
    if (ztensor.held() && !living.containsKey(ztensor.id())) {
      living.put(ztensor.id(), new Living(ztensor, unreachable));
    }
  }

  /** Throws ZdnnException for an error status, reports a warning to the listener. */
  private void throwForStatus(Verb call, OperationResult result, int index) {
    int status = result.getZdnnStatus();
    if (Statuses.isWarning(status)) {
      listener.accept(new ZdnnWarning(status, call.name, result.getRangeViolation()));
    } else if (status != 0) {
      throw new ZdnnException(call.name, result, index);
    }
  }

  /** Concludes a call that was no list's: updates its ztensors, throws for an error status. */
  void conclude(Verb call, OperationResult result) {
    applyResult(call, result);
    throwForStatus(call, result, -1);
  }

  /** Reconciles with the server after a lost answer, now or before the next call. */
  synchronized void markUncertain() {
    uncertain = true;
    try {
      reconcile();
    } catch (NnpaException error) {
      LOG.log(System.Logger.Level.DEBUG, "ztensors are looked up before the next call", error);
    }
  }

  private void reconcile() {
    Map<Long, ZtensorInfo> present =
        listTensors().stream().collect(Collectors.toMap(ZtensorInfo::getId, info -> info));
    collect();
    dropped.removeIf(id -> !present.containsKey(id));
    living.forEach(
        (id, reference) -> {
          Ztensor ztensor = reference.get();
          if (ztensor != null && present.containsKey(id)) {
            ztensor.update(present.get(id).getZtensor());
          }
        });
    uncertain = false;
  }

  /** Lists the tensors that the server holds for the session, by ascending id. */
  List<ZtensorInfo> listTensors() {
    List<ZtensorInfo> tensors = new ArrayList<>();
    var request = ListTensorsRequest.newBuilder().setSession(name).setPageSize(1000);
    ListTensorsResponse page;
    do {
      page = transport.listTensors(request.build());
      tensors.addAll(page.getTensorsList());
      request.setPageToken(page.getNextPageToken());
    } while (!page.getNextPageToken().isEmpty());
    return tensors;
  }
}
