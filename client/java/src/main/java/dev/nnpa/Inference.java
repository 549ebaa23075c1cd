// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.network.v1.NodeViolation;
import java.util.List;
import java.util.Map;

/**
 * The result of one run of a hosted network, with its diagnostics.
 *
 * @param outputs the outputs, by name
 * @param violations values that are no numbers, which the accelerator used or stored
 * @param nans how many elements of each output are NaN
 * @param calls how often each zDNN function was called
 */
public record Inference(
    Map<String, NetworkArray> outputs,
    List<NodeViolation> violations,
    Map<String, Long> nans,
    Map<String, Long> calls) {}
