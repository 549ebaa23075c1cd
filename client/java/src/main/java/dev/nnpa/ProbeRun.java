// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.gson.Gson;
import java.util.List;
import java.util.Map;

/**
 * One run of {@link Network#probe}: where, over which inputs, and what it gave.
 *
 * @param machine the machine
 * @param sizes the values of free dims, by their names
 * @param inputs what the inputs are: "zeros", "constants", "all masked", "extremes"
 * @param nans how many elements of all outputs are NaN
 * @param violations how many calls had a range violation
 * @param first the node of the first violation, "" without one
 * @param limit why the run could not take place, "" where it did
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
