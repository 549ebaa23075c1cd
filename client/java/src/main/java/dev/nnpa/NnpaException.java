// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.Any;
import com.google.protobuf.Duration;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.util.Set;

/**
 * Anything that this library throws on purpose.
 *
 * <pre>
 * NnpaException
 *   ZdnnException           the accelerator or the library answered with a status that is an error
 *   ProgramCheckException   the machine would have ended the program
 *   NetworkException        the client API of a hosted network refuses
 *   MliException            a kernel of embARC MLI answered with a status that is an error
 *   TransportException      the call did not reach the accelerator, or its answer got lost
 *     SessionLostException  the server of the session is gone
 * </pre>
 *
 * <p>A warning is no exception: {@link ZdnnWarning}.
 */
public abstract sealed class NnpaException extends RuntimeException
    permits ZdnnException,
        ProgramCheckException,
        NetworkException,
        MliException,
        TransportException {
  private static final long serialVersionUID = 1L;

  /** The codes that, without a reason of the server, mean that the server is gone. */
  private static final Set<String> LOST = Set.of("UNAVAILABLE", "INTERNAL", "CANCELLED", "UNKNOWN");

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
    ErrorInfo info = detail(error, ErrorInfo.getDefaultInstance());
    if (info.getReason().equals("PROGRAM_CHECK")) {
      return new ProgramCheckException(message, info.getMetadataMap(), error);
    }
    boolean alone = status.getCode() == Status.Code.UNAVAILABLE && info.getReason().isEmpty();
    String text = alone ? target + ": " + message : message;
    String code = status.getCode().name();
    Duration delay = detail(error, RetryInfo.getDefaultInstance()).getRetryDelay();
    return new TransportException(code, text, info.getReason(), info.getMetadataMap(), error)
        .retryAfter(java.time.Duration.ofSeconds(delay.getSeconds(), delay.getNanos()));
  }

  /** Explains a failed call of a session that this side has not given up. */
  static NnpaException inSession(StatusRuntimeException error, String target) {
    String code = error.getStatus().getCode().name();
    String reason = detail(error, ErrorInfo.getDefaultInstance()).getReason();
    if (!LOST.contains(code) || !reason.isEmpty()) {
      return of(error, target);
    }
    String details = target + ": " + error.getStatus().getDescription();
    return new SessionLostException(code, details, error);
  }

  /** Returns this exception with indices less {@code before}, the client's own operations. */
  NnpaException renumbered(int before) {
    return this;
  }

  /** Returns the detail of a type that an error carries; {@code none} where there is none. */
  private static <M extends Message> M detail(StatusRuntimeException error, M none) {
    @SuppressWarnings("unchecked")
    Class<M> type = (Class<M>) none.getClass();
    for (Any detail : StatusProto.fromThrowable(error).getDetailsList()) {
      if (detail.is(type)) {
        try {
          return detail.unpack(type);
        } catch (InvalidProtocolBufferException malformed) {
          return none;
        }
      }
    }
    return none;
  }
}
