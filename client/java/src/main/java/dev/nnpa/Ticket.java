// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import io.grpc.Metadata;
import io.grpc.stub.AbstractStub;
import io.grpc.stub.MetadataUtils;
import java.util.concurrent.atomic.AtomicReference;

/** The header by which a proxy routes the calls of a session to its server. */
final class Ticket {
  private static final Metadata.Key<String> HEADER =
      Metadata.Key.of("nnpa-session-ticket", Metadata.ASCII_STRING_MARSHALLER);

  private Ticket() {}

  /** Returns a stub whose calls carry a ticket; the same for "". */
  static <S extends AbstractStub<S>> S attached(S stub, String ticket) {
    if (ticket.isEmpty()) {
      return stub;
    }
    Metadata headers = new Metadata();
    headers.put(HEADER, ticket);
    return stub.withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers));
  }

  /** Returns a stub that hands on the headers of answers. */
  static <S extends AbstractStub<S>> S captured(S stub, AtomicReference<Metadata> headers) {
    return stub.withInterceptors(
        MetadataUtils.newCaptureMetadataInterceptor(headers, new AtomicReference<>()));
  }

  /** Returns the ticket in the headers of an answer, else {@code given}. */
  static String in(Metadata headers, String given) {
    String ticket = headers == null ? null : headers.get(HEADER);
    return ticket == null ? given : ticket;
  }
}
