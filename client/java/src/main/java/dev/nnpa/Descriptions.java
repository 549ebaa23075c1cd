// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.network.v1.NetworkReport;
import dev.nnpa.network.v1.Node;
import dev.nnpa.zdnn.v1.Machine;
import dev.nnpa.zdnn.v1.TensorDesc;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** Messages of the contract in one line each, for people, and never with a session's name. */
public final class Descriptions {
  private Descriptions() {}

  /** Returns layout, sizes and type: "TensorDesc[ZDNN_2D 2x3 FP32]". */
  public static String of(TensorDesc desc) {
    return "TensorDesc[" + Descriptors.describe(desc) + "]";
  }

  /** Returns the names of a machine, and its number of functions. */
  public static String of(Machine machine) {
    String names =
        Stream.concat(Stream.of(name(machine)), machine.getAliasesList().stream())
            .collect(Collectors.joining(", "));
    String installed =
        machine.getNnpaInstalled() ? machine.getFunctionsCount() + " functions" : "no NNPA";
    return "Machine[" + names + ": " + machine.getDisplayName() + ", " + installed + "]";
  }

  /** Returns machine, version, tensors and bytes of a session. */
  public static String of(dev.nnpa.zdnn.v1.Session status) {
    return String.format(
        "Session[of %s, zDNN %s: %d tensors, %d bytes]",
        name(status.getMachine()),
        status.getLibraryVersion(),
        status.getTensorCount(),
        status.getStoredBytes());
  }

  /** Returns how many nodes of a network are where, with the operators on the host. */
  public static String of(NetworkReport report) {
    List<Node> host = on(report, "host");
    String operators =
        host.stream().map(Node::getOpType).distinct().collect(Collectors.joining(", "));
    return String.format(
        "NetworkReport[%s on %s: %d nodes on the accelerator, %d on the host%s, %d folded]",
        report.getModelName(),
        report.getMachine(),
        on(report, "accelerator").size(),
        host.size(),
        operators.isEmpty() ? "" : " (" + operators + ")",
        on(report, "folded").size());
  }

  private static List<Node> on(NetworkReport report, String device) {
    return report.getNodesList().stream().filter(node -> node.getDevice().equals(device)).toList();
  }

  /** Returns a machine's name as {@link Options#machine} takes it, "custom" if it has none. */
  static String name(Machine machine) {
    String name = machine.getName().replace("machines/", "");
    return name.isEmpty() ? "custom" : name;
  }
}
