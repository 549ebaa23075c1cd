// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.network.v1.NodeViolation;
import java.util.List;
import java.util.Map;

/**
 * The result of one run of a hosted network, with its diagnostics.
 *
 * @param outputs the outputs, by name
 * @param violations values that are not numbers, which the accelerator used or stored
 * @param nans the number of NaN elements of each output
 * @param calls the number of calls of each zDNN function
 */
public record Inference(
    Map<String, NetworkArray> outputs,
    List<NodeViolation> violations,
    Map<String, Long> nans,
    Map<String, Long> calls) {}
