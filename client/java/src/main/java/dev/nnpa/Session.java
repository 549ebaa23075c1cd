// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import dev.nnpa.zdnn.v1.CreateSessionRequest;
import dev.nnpa.zdnn.v1.DataLayouts;
import dev.nnpa.zdnn.v1.DataTypes;
import dev.nnpa.zdnn.v1.DeleteSessionRequest;
import dev.nnpa.zdnn.v1.GetSessionRequest;
import dev.nnpa.zdnn.v1.ListMachinesRequest;
import dev.nnpa.zdnn.v1.ListMachinesResponse;
import dev.nnpa.zdnn.v1.Machine;
import dev.nnpa.zdnn.v1.Operation;
import dev.nnpa.zdnn.v1.OperationResult;
import dev.nnpa.zdnn.v1.SessionLimits;
import dev.nnpa.zdnn.v1.TensorDesc;
import dev.nnpa.zdnn.v1.UpdateSessionRequest;
import dev.nnpa.zdnn.v1.ZtensorInfo;
import io.grpc.stub.AbstractStub;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/**
 * A guest on an emulated machine with a zDNN library and its ztensors.
 *
 * <p>Use one thread at a time, or a session per thread. Closing deletes the session with its
 * ztensors.
 */
public final class Session implements AutoCloseable {
  final Guest guest;
  private final PrivateServer server;
  private dev.nnpa.zdnn.v1.Session message;
  private boolean closed;

  private Session(Transport transport, Options options, PrivateServer server) {
    this.server = server;
    var request = CreateSessionRequest.newBuilder().setSession(options.message(transport)).build();
    this.message = Waiting.createSession(transport, request, options.maxWait());
    this.guest = new Guest(transport, message);
  }

  /** Opens a session on a private server, {@code nnpa-server} of the PATH, which ends with it. */
  public static Session connect() {
    return connect(new Options());
  }

  /** Opens a session on a private server as {@code options} say. */
  public static Session connect(Options options) {
    PrivateServer server = PrivateServer.start("nnpa-server");
    try {
      return connect(new GrpcTransport(Endpoint.of(server.target())), options, server);
    } catch (RuntimeException error) {
      server.close();
      throw error;
    }
  }

  /** Opens a session at "host:port" or "unix:/path", with TLS and token as the environment says. */
  public static Session connect(String target) {
    return connect(Endpoint.of(target), new Options());
  }

  /** Opens a session as {@code options} say. */
  public static Session connect(String target, Options options) {
    return connect(Endpoint.of(target), options);
  }

  /** Opens a session at an endpoint, throws {@link TransportException}. */
  public static Session connect(Endpoint endpoint, Options options) {
    return connect(new GrpcTransport(endpoint), options);
  }

  /** Opens a session over a transport, which is closed with it. */
  public static Session connect(Transport transport, Options options) {
    return connect(transport, options, null);
  }

  private static Session connect(Transport transport, Options options, PrivateServer server) {
    try {
      return new Session(transport, options, server);
    } catch (RuntimeException error) {
      transport.close();
      throw error;
    }
  }

  /** Lists the machines of a server, each with its answer to NNPA-QAF. */
  public static List<Machine> machines(Endpoint endpoint) {
    try (Transport transport = new GrpcTransport(endpoint)) {
      List<Machine> machines = new ArrayList<>();
      ListMachinesRequest.Builder request = ListMachinesRequest.newBuilder().setPageSize(1000);
      ListMachinesResponse page;
      do {
        page = transport.listMachines(request.build());
        machines.addAll(page.getMachinesList());
        request.setPageToken(page.getNextPageToken());
      } while (!page.getNextPageToken().isEmpty());
      return machines;
    }
  }

  /** Returns the resource name; it is the only credential of the session. */
  public String name() {
    return message.getName();
  }

  /**
   * Adds the session's routing ticket to a stub of another API of the server, or of another
   * connection, so that a proxy leads its calls to the session's server.
   */
  public <S extends AbstractStub<S>> S withTicket(S stub) {
    return Ticket.attached(stub, guest.transport.ticket());
  }

  /** Returns the server's address. */
  public String target() {
    return guest.transport.target();
  }

  /** Returns the session's machine, with its answer to NNPA-QAF. */
  public Machine machine() {
    return message.getMachine();
  }

  /** Returns the version of zDNN, for example "1.2.0": zdnn_get_library_version_str. */
  public String getLibraryVersionStr() {
    return message.getLibraryVersion();
  }

  /** Returns the version of zDNN, 0x00MMmmpp: zdnn_get_library_version. */
  public int getLibraryVersion() {
    int version = 0;
    for (String part : message.getLibraryVersion().split("\\.")) {
      version = version << 8 | Integer.parseInt(part);
    }
    return version;
  }

  /** Returns the session's limits. */
  public SessionLimits limits() {
    return message.getLimits();
  }

  /**
   * Asks the server for the session as it is now: options, tensor_count, stored_bytes, ..., but not
   * its name, which is a key. {@link Descriptions} says it in one line.
   */
  public dev.nnpa.zdnn.v1.Session status() {
    message = guest.transport.getSession(GetSessionRequest.newBuilder().setName(name()).build());
    return message.toBuilder().clearName().build();
  }

  /** Lists the tensors that the server holds for the session, by ascending id. */
  public List<ZtensorInfo> listTensors() {
    return guest.listTensors();
  }

  /**
   * Changes the options that {@code options} set; ztensors stay. After a move to another machine
   * the query functions answer from the old query result until {@link Zdnn#init} or {@link
   * Zdnn#refreshNnpaQueryResult} runs, as on the machine.
   */
  public void update(Options options) {
    guest.flush();
    var request = UpdateSessionRequest.newBuilder().setUpdateMask(options.mask());
    request.setSession(options.message(guest.transport).setName(name()));
    message = guest.transport.updateSession(request.build());
  }

  /** Sends warnings to {@code listener} instead of the logger {@code dev.nnpa.zdnn}. */
  public void onWarning(Consumer<ZdnnWarning> listener) {
    guest.listener = listener;
  }

  /** Returns a transformed FP32 ztensor; 1 to 4 dims are ZDNN_1D, ZDNN_2D, ZDNN_3D, ZDNN_NHWC. */
  public Ztensor ztensor(float[] data, int... dims) {
    DataLayouts layout =
        switch (dims.length) {
          case 1 -> DataLayouts.ZDNN_1D;
          case 2 -> DataLayouts.ZDNN_2D;
          case 3 -> DataLayouts.ZDNN_3D;
          case 4 -> DataLayouts.ZDNN_NHWC;
          default ->
              throw new IllegalArgumentException("dims: " + dims.length + ", expected 1 to 4");
        };
    return ztensor(layout, DataTypes.FP32, UserArray.of(data), dims);
  }

  /**
   * Returns a transformed ztensor with data of the type, in the layout, one of {@code dims} for
   * each dimension.
   *
   * @throws IllegalArgumentException for data of another size
   */
  public Ztensor ztensor(DataLayouts layout, DataTypes type, UserArray data, int... dims) {
    TensorDesc pre = Descriptors.initPreTransformedDesc(layout, type, dims);
    data.check(type, dims);
    TensorDesc tfrmd = Descriptors.generateTransformedDesc(pre);
    return Zdnn.transformZtensor(Ztensors.initZtensorWithMalloc(this, pre, tfrmd), data);
  }

  /**
   * Copies a ztensor of another session or of a machine into the session, unchecked, and returns
   * it. {@code structure} gives the fields of C's structure, {@code sticks} (little-endian, {@link
   * Descriptors#getsizeZtensor} bytes) the buffer; null is C's NULL.
   */
  public Ztensor putZtensor(dev.nnpa.zdnn.v1.Ztensor structure, ByteBuffer sticks) {
    return Transfer.put(guest, structure, sticks);
  }

  /** Hosts the ONNX model of a file; see {@link #load(byte[], LoadOptions)}. */
  public Network load(Path model) throws IOException {
    return load(model, new LoadOptions());
  }

  /** Hosts an ONNX model; see {@link #load(byte[], LoadOptions)}. */
  public Network load(byte[] model) {
    return load(model, new LoadOptions());
  }

  /** Hosts the ONNX model of a file; see {@link #load(byte[], LoadOptions)}. */
  public Network load(Path model, LoadOptions options) throws IOException {
    return load(Files.readAllBytes(model), options);
  }

  /**
   * Hosts an ONNX model, given by the bytes of its file, and returns it, ready to run. Throws
   * {@link NetworkException} for a refusal of the client API, {@link TransportException} for a
   * model that cannot be hosted.
   */
  public Network load(byte[] model, LoadOptions options) {
    ByteString bytes = UnsafeByteOperations.unsafeWrap(model);
    return Network.load(guest, options.header().setOnnxBytes(bytes.size()), bytes);
  }

  /** Hosts a model that the server offers by name; see {@link #load(byte[], LoadOptions)}. */
  public Network loadPublished(String name, LoadOptions options) {
    return Network.load(guest, options.header().setPublished(name), ByteString.EMPTY);
  }

  /** Opens a list of calls that leave together. */
  public Pipeline pipeline() {
    return new Pipeline(guest);
  }

  /** Runs operations of the wire contract as they are, and returns their answers unjudged. */
  public List<OperationResult> execute(List<Operation> operations) {
    guest.flush();
    return guest.execute(operations);
  }

  /** Returns an id that no tensor of the session has had, for {@link #execute}. */
  public long newId() {
    return guest.newId();
  }

  /** Deletes the session with its ztensors, and ends a private server. May be repeated. */
  @Override
  public void close() {
    if (closed) {
      return;
    }
    closed = true;
    try {
      guest.transport.deleteSession(DeleteSessionRequest.newBuilder().setName(name()).build());
    } catch (TransportException gone) {
      System.getLogger("dev.nnpa")
          .log(System.Logger.Level.DEBUG, "the session was gone already", gone);
    } finally {
      guest.transport.close();
      if (server != null) {
        server.close();
      }
    }
  }

  /** Returns address, machine and version, and never the session's name, which is a key. */
  @Override
  public String toString() {
    String state = closed ? "closed" : "open";
    String machine = Descriptions.name(machine()) + ", zDNN " + getLibraryVersionStr();
    return "Session[" + state + " at " + target() + ", " + machine + "]";
  }
}
