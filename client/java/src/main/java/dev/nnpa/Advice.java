// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

/** What a user can do about a call that failed. */
final class Advice {
  private Advice() {}

  /**
   * Returns the advice for an {@code ErrorReason} of nnpa.zdnn.v1, or for the gRPC code where there
   * is none.
   */
  static String of(String code, String reason) {
    return switch (reason) {
      case "SESSION_NOT_FOUND" -> "The session was closed or expired when idle: connect again.";
      case "SESSION_QUOTA_EXCEEDED" -> "Close sessions that are not needed, or try again later.";
      case "MACHINE_NOT_FOUND" -> "Session.machines lists the machines.";
      case "MACHINE_INVALID" -> "A custom machine can only lack what its model has.";
      case "LIBRARY_VERSION_UNKNOWN" -> "Choose one of the versions named.";
      case "FUNCTION_NOT_IN_LIBRARY" -> "Choose a later version with Options.library.";
      case "FUNCTION_NOT_IMPLEMENTED" -> "Use a server that implements the function.";
      case "OPERATION_UNKNOWN" ->
          "The server is older than this client, or the operation is empty.";
      case "FIELD_UNSPECIFIED" -> "Set the field named.";
      case "FIELD_INVALID" -> "Change the field named to what is allowed.";
      case "TENSOR_NOT_FOUND" -> "The ztensor was freed: make a new one.";
      case "TENSOR_ID_IN_USE" -> "Leave the choice of ids to this client, or choose another.";
      case "TENSOR_QUOTA_EXCEEDED" -> "Free ztensors (Ztensors.freeZtensorBuffer) and try again.";
      case "DATA_SIZE_MISMATCH" -> "Give arrays of exactly the size that the descriptors call for.";
      case "MESSAGE_TOO_LARGE" ->
          "Send less per call; transformZtensor and transformOrigtensor stream.";
      case "STREAM_ORDER" -> "Send one header, then as many bytes as it announces.";
      case "PAGE_TOKEN_INVALID" -> "List again from the first page.";
      case "SERVER_DRAINING" -> "The server is shutting down: connect to another one.";
      case "TOKEN_INVALID" -> "Set ZDNN_TOKEN or Endpoint.withToken.";
      case "MACHINE_NOT_ALLOWED" -> "Choose a machine that the token is for.";
      case "CALL_QUOTA_EXCEEDED" -> "Make fewer calls at a time, or try again later.";
      case "INTERNAL" -> "This is a defect of the server: report the correlation id.";
      case "CACHE_MISS" -> "Send the sticks: the session's cache has forgotten them.";
      default -> ofNetwork(code, reason);
    };
  }

  private static String ofNetwork(String code, String reason) {
    return switch (reason) {
      case "NETWORK_NOT_FOUND" ->
          "The network was destroyed, or ended with its session: load it anew.";
      case "NETWORK_NOT_READY" -> "Initialise the network; reports need one made from ONNX.";
      case "NETWORK_FAILED" ->
          "`nnpa network probe` shows at which sizes and inputs a model fails.";
      case "MODEL_INVALID" ->
          "`nnpa network analyze` tells what runs where; change the node named.";
      case "MODEL_EXISTS" -> "Publish under another name, or unload the model first.";
      case "MODEL_NOT_FOUND" -> "RepositoryIndex lists the models of the server.";
      case "MODEL_UNAVAILABLE" -> "Load the model, or wait until it is loaded.";
      case "MODEL_QUOTA_EXCEEDED" -> "Unload models, or unregister regions, that are not needed.";
      case "EXTENSION_NOT_OFFERED" ->
          "ServerMetadata lists the extensions that this server offers.";
      case "REGION_NOT_FOUND" -> "Register the region on the connection that uses it.";
      case "REGION_IN_USE" -> "Unregister the region first, or choose another name.";
      case "RESPONSE_TOO_LARGE" ->
          "Set the option named on the channel, and say so in the request.";
      case "FAULTS_NOT_ALLOWED" -> "Start the server with --allow-faults, or leave the rules out.";
      default -> ofCode(code);
    };
  }

  private static String ofCode(String code) {
    return switch (code) {
      case "UNAVAILABLE" ->
          "Check that a server listens there (`nnpa-server --listen ...`), and TLS.";
      case "DEADLINE_EXCEEDED" -> "Raise Endpoint.withTimeout, or send less per call.";
      case "CANCELLED" -> "The call was cancelled, or the server stopped: connect again.";
      case "RESOURCE_EXHAUSTED" ->
          "The message exceeds the server's --max-message: send less per call.";
      case "UNIMPLEMENTED" ->
          "The server does not speak nnpa.zdnn.v1, or is older than this client.";
      default -> "Report this with its message.";
    };
  }
}
