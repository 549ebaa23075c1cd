// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import dev.nnpa.zdnn.v1.AcceleratorServiceGrpc;
import dev.nnpa.zdnn.v1.CreateSessionRequest;
import dev.nnpa.zdnn.v1.DeleteSessionRequest;
import dev.nnpa.zdnn.v1.ExecuteRequest;
import dev.nnpa.zdnn.v1.ExecuteResponse;
import dev.nnpa.zdnn.v1.GetMachineRequest;
import dev.nnpa.zdnn.v1.GetSessionRequest;
import dev.nnpa.zdnn.v1.ListMachinesRequest;
import dev.nnpa.zdnn.v1.ListMachinesResponse;
import dev.nnpa.zdnn.v1.ListTensorsRequest;
import dev.nnpa.zdnn.v1.ListTensorsResponse;
import dev.nnpa.zdnn.v1.Machine;
import dev.nnpa.zdnn.v1.ReadTensorRequest;
import dev.nnpa.zdnn.v1.ReadTensorResponse;
import dev.nnpa.zdnn.v1.UpdateSessionRequest;
import dev.nnpa.zdnn.v1.WriteTensorRequest;
import dev.nnpa.zdnn.v1.WriteTensorResponse;
import io.grpc.Channel;
import io.grpc.stub.AbstractStub;
import java.util.Iterator;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * The one seam between this library and a server: the methods of {@code
 * nnpa.zdnn.v1.AcceleratorService} that it uses, replaceable in tests. Each throws {@link
 * TransportException}, or {@link ProgramCheckException} where the machine would end the program.
 */
public interface Transport extends AutoCloseable {
  /** Returns the server's address, for people. */
  String target();

  /** Returns the ticket by which a proxy reaches the session's server; "" without a proxy. */
  default String ticket() {
    return "";
  }

  /** Lists one page of machines. */
  ListMachinesResponse listMachines(ListMachinesRequest request);

  /** Gets one machine by name or alias. */
  Machine getMachine(GetMachineRequest request);

  /** Creates a session. */
  dev.nnpa.zdnn.v1.Session createSession(CreateSessionRequest request);

  /** Gets a session with its present use. */
  default dev.nnpa.zdnn.v1.Session getSession(GetSessionRequest request) {
    return call(AcceleratorServiceGrpc::newBlockingStub, stub -> stub.getSession(request));
  }

  /** Changes options of a session. */
  default dev.nnpa.zdnn.v1.Session updateSession(UpdateSessionRequest request) {
    return call(AcceleratorServiceGrpc::newBlockingStub, stub -> stub.updateSession(request));
  }

  /** Deletes a session with its tensors. */
  void deleteSession(DeleteSessionRequest request);

  /** Runs operations in order. */
  ExecuteResponse execute(ExecuteRequest request);

  /** Fills a tensor: a header, then chunks. */
  default WriteTensorResponse writeTensor(Iterator<WriteTensorRequest> parts) {
    Upload<WriteTensorRequest, WriteTensorResponse> upload = new Upload<>(parts);
    return call(AcceleratorServiceGrpc::newStub, stub -> upload.answer(stub::writeTensor));
  }

  /** Reads a tensor: hands a header, then chunks, to {@code sink}. */
  void readTensor(ReadTensorRequest request, Consumer<ReadTensorResponse> sink);

  /** Lists one page of a session's tensors. */
  default ListTensorsResponse listTensors(ListTensorsRequest request) {
    return call(AcceleratorServiceGrpc::newBlockingStub, stub -> stub.listTensors(request));
  }

  /**
   * Calls a method of another service of the server by a stub, for hosted networks and embARC MLI;
   * a transport without a connection throws {@link UnsupportedOperationException}.
   */
  default <S extends AbstractStub<S>, T> T call(Function<Channel, S> stub, Function<S, T> method) {
    throw new UnsupportedOperationException("transport: has no other services");
  }

  /** Closes the connection. */
  @Override
  void close();
}
