// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.network.v1.MeasureAccuracyRequest;
import dev.nnpa.network.v1.Port;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The rows of a dataset for all inputs of a network, in batches, with their labels. */
final class Rows {
  private static final long MAX_BATCH_ROWS = 4096; // source: MeasureAccuracyRequest.batch_rows
  private static final long MAX_BATCH_BYTES = 8 << 20;
  private static final long MAX_BATCH_SPACE = 512 << 20; // bytes of sticks

  private final List<Port> inputs;
  private final Map<Port, NetworkArray> arrays = new LinkedHashMap<>();
  private final long[] labels;
  final int count;

  /** Takes an array for each input; throws for those that are not of its type and shape. */
  Rows(List<Port> inputs, Map<String, NetworkArray> data, long[] labels) {
    this.inputs = inputs;
    this.labels = labels;
    long rows = 0;
    for (Port input : inputs) {
      NetworkArray array = data.get(input.getName());
      Port port = overRows(input, array.shape().size());
      NetworkArray shaped = array.shapedAs(port);
      long length = shaped.shape().get(0);
      if (!arrays.isEmpty() && length != rows) {
        String got = "input " + port.getName() + ": got " + length + " rows, expected " + rows;
        throw new IllegalArgumentException(got + ", as of " + inputs.get(0).getName());
      }
      rows = length;
      arrays.put(port, shaped);
    }
    count = Math.toIntExact(rows);
    if (count == 0) {
      throw new IllegalArgumentException("rows: got none, expected at least 1");
    }
    if (labels.length % count != 0) {
      throw new IllegalArgumentException(
          "labels: got " + labels.length + " for " + count + " rows, expected as many for each");
    }
  }

  /** Returns an input over rows: its first dim where that is free, else one dim more. */
  private static Port overRows(Port port, int dims) {
    boolean own = port.getShapeCount() > 0 && port.getShape(0) < 0;
    if (own && (dims == 0 || dims == port.getShapeCount())) {
      return port;
    }
    return port.toBuilder().clearShape().addShape(-1).addAllShape(port.getShapeList()).build();
  }

  /** Puts rows and their labels into a request; the last row is not among them. */
  void fill(MeasureAccuracyRequest.Builder request, int first, int last) {
    arrays.forEach((port, array) -> request.addRows(array.part(first, last).encode(port)));
    if (labels.length > 0) {
      int each = labels.length / count;
      Port port = Port.newBuilder().setDtype("int64").addShape(-1).addShape(each).build();
      request.setLabels(NetworkArray.of(labels, count, each).part(first, last).encode(port));
    }
  }

  /** Returns a power of two by the bytes of a row, and by what a run of it takes for sticks. */
  int batchRows(long activations) {
    long row = 0;
    for (NetworkArray array : arrays.values()) {
      row += array.byteCount() / count;
    }
    long declared = inputs.stream().mapToLong(NetworkArray::declaredBytes).sum();
    long space = activations * Math.max(1, row / Math.max(declared, 1));
    long most = Math.min(MAX_BATCH_BYTES / Math.max(row, 1), MAX_BATCH_SPACE / Math.max(space, 1));
    return (int) Long.highestOneBit(Math.min(MAX_BATCH_ROWS, Math.max(most, 1)));
  }
}
