// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.gson.Gson;
import java.util.List;
import java.util.Map;

/**
 * One run of {@link Network#probe}: machine, inputs and findings.
 *
 * @param machine the machine
 * @param sizes the values of free dims, by their names
 * @param inputs the kind of the inputs: "zeros", "constants", "all masked" or "extremes"
 * @param nans the number of NaN elements in all outputs
 * @param violations the number of calls with a range violation
 * @param first the node of the first violation, "" without one
 * @param limit why the run could not take place, "" if it did
 */
public record ProbeRun(
    String machine,
    Map<String, Long> sizes,
    String inputs,
    long nans,
    long violations,
    String first,
    String limit) {

  static List<ProbeRun> listOf(String json) {
    return List.of(new Gson().fromJson(json, ProbeRun[].class));
  }
}
