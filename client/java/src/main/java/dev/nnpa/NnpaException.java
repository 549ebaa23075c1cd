// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

/**
 * Anything that this library throws on purpose.
 *
 * <pre>
 * NnpaException
 *   ZdnnException           the accelerator or the library answered with a status that is an error
 *   ProgramCheckException   the machine would have ended the program
 *   TransportException      the call did not reach the accelerator, or its answer got lost
 * </pre>
 *
 * <p>A warning is no exception: {@link ZdnnWarning}.
 */
public abstract sealed class NnpaException extends RuntimeException
    permits ZdnnException, ProgramCheckException, TransportException {
  private static final long serialVersionUID = 1L;

  NnpaException(String message, Throwable cause) {
    super(message, cause);
  }
}
