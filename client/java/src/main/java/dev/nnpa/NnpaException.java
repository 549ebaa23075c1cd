// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;

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

  /**
   * Explains a failed gRPC call, of this library's own or of a generated stub's.
   *
   * @param target the server's address, named in the message of an unreachable server
   */
  public static NnpaException of(StatusRuntimeException error, String target) {
    Status status = error.getStatus();
    String message = status.getDescription() == null ? "" : status.getDescription();
    ErrorInfo info = info(error);
    if (info.getReason().equals("PROGRAM_CHECK")) {
      return new ProgramCheckException(message, info.getMetadataMap(), error);
    }
    boolean alone = status.getCode() == Status.Code.UNAVAILABLE && info.getReason().isEmpty();
    String text = alone ? target + ": " + message : message;
    String code = status.getCode().name();
    return new TransportException(code, text, info.getReason(), info.getMetadataMap(), error);
  }

  private static ErrorInfo info(StatusRuntimeException error) {
    com.google.rpc.Status details = StatusProto.fromThrowable(error);
    ErrorInfo none = ErrorInfo.getDefaultInstance();
    if (details == null) {
      return none;
    }
    for (Any detail : details.getDetailsList()) {
      if (detail.is(ErrorInfo.class)) {
        try {
          return detail.unpack(ErrorInfo.class);
        } catch (InvalidProtocolBufferException malformed) {
          return none;
        }
      }
    }
    return none;
  }
}
