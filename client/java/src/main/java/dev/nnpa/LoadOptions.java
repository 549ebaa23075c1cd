// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.network.v1.CreateNetworkHeader;
import dev.nnpa.network.v1.Overflow;
import dev.nnpa.network.v1.Placement;

/** Options of compiling a model; see the comments of {@code CreateOptions} in the wire contract. */
public final class LoadOptions {
  private final CreateNetworkHeader.Builder header = CreateNetworkHeader.newBuilder();

  /** Chooses the C name. Default: a new name in the session. */
  public LoadOptions cName(String name) {
    header.setCName(name);
    return this;
  }

  /** Chooses how much goes to the accelerator. Default: PLACEMENT_COMPILER. */
  public LoadOptions placement(Placement placement) {
    header.getOptionsBuilder().setPlacement(placement);
    return this;
  }

  /** Refuses a model with a node on the host. */
  public LoadOptions strictPlacement(boolean strict) {
    header.getOptionsBuilder().setStrictPlacement(strict);
    return this;
  }

  /** Runs integer products on the accelerator, which rounds. */
  public LoadOptions offloadInteger(boolean offload) {
    header.getOptionsBuilder().setOffloadInteger(offload);
    return this;
  }

  /** Chooses the result of values beyond DLFLOAT16. Default: OVERFLOW_SATURATE. */
  public LoadOptions overflow(Overflow overflow) {
    header.getOptionsBuilder().setOverflow(overflow);
    return this;
  }

  /** Offers the model under this name to every session of the server. */
  public LoadOptions publishAs(String name) {
    header.setPublishAs(name);
    return this;
  }

  CreateNetworkHeader.Builder header() {
    return header.clone();
  }
}
