// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.network.v1.MeasureAccuracyRequest;
import java.util.List;
import java.util.Map;

/** How to measure; see the comments of {@code MeasureAccuracyRequest} in the wire contract. */
public final class AccuracyOptions {
  private static final int MAX_BATCH_ROWS = 4096; // source: MeasureAccuracyRequest.batch_rows

  private final MeasureAccuracyRequest.Builder settings = MeasureAccuracyRequest.newBuilder();
  private final MeasureAccuracyRequest.Builder report = MeasureAccuracyRequest.newBuilder();
  private long[] labels = {};

  /** Says what the answers should be, as many for each row as some output has answers. */
  public AccuracyOptions labels(long... answers) {
    labels = answers.clone();
    return this;
  }

  /** Chooses the machines to measure. Default: both Telums. */
  public AccuracyOptions machines(List<String> names) {
    settings.clearMachines().addAllMachines(names);
    return this;
  }

  /** Chooses the rows of a request, 1 to 4096. Default: a number by the size of a row. */
  public AccuracyOptions batchRows(int rows) {
    if (rows < 1 || rows > MAX_BATCH_ROWS) {
      throw new IllegalArgumentException(
          "batchRows: got " + rows + ", expected 1 to " + MAX_BATCH_ROWS);
    }
    settings.setBatchRows(rows);
    return this;
  }

  /** Chooses how many of the first rows are measured node by node, 0 to 1024. Default: 16. */
  public AccuracyOptions nodeRows(int rows) {
    settings.setNodeRows(rows);
    return this;
  }

  /** Measures as well what becomes of the model on Telum II with constant matrices in INT8. */
  public AccuracyOptions int8(boolean measured) {
    settings.setInt8(measured);
    return this;
  }

  /** Gives the loss, as a share, that the verdict compares with. */
  public AccuracyOptions maxDrop(double share) {
    report.setMaxDrop(share);
    return this;
  }

  /** Makes the page as well. */
  public AccuracyOptions html(boolean made) {
    report.setHtml(made);
    return this;
  }

  /** Gives lines of the report that only the caller knows, such as the name of the data. */
  public AccuracyOptions about(Map<String, String> lines) {
    report.clearAbout().putAllAbout(lines);
    return this;
  }

  long[] labels() {
    return labels;
  }

  /** Returns what every request says. */
  MeasureAccuracyRequest.Builder settings() {
    return settings.clone();
  }

  /** Returns what the last request says. */
  MeasureAccuracyRequest report() {
    return report.build();
  }
}
