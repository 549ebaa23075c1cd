// SPDX-License-Identifier: Apache-2.0
package dev.nnpa;

import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Message;
import dev.nnpa.network.v1.Buffer;
import dev.nnpa.network.v1.CreateNetworkHeader;
import dev.nnpa.network.v1.CreateNetworkRequest;
import dev.nnpa.network.v1.CreateNetworkResponse;
import dev.nnpa.network.v1.DestroyNetworkRequest;
import dev.nnpa.network.v1.GetNetworkErrorRequest;
import dev.nnpa.network.v1.GetNetworkInfoRequest;
import dev.nnpa.network.v1.GetNetworkInfoResponse;
import dev.nnpa.network.v1.InferNetworkRequest;
import dev.nnpa.network.v1.InferNetworkResponse;
import dev.nnpa.network.v1.InitNetworkRequest;
import dev.nnpa.network.v1.NamedArray;
import dev.nnpa.network.v1.NetworkReport;
import dev.nnpa.network.v1.NetworkServiceGrpc;
import dev.nnpa.network.v1.NetworkServiceGrpc.NetworkServiceBlockingStub;
import dev.nnpa.network.v1.NodeViolation;
import dev.nnpa.network.v1.Port;
import dev.nnpa.network.v1.ProbeNetworkRequest;
import dev.nnpa.zdnn.v1.RangeViolation;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.function.Function;
import java.util.stream.Collectors;

/**
 * A model on the accelerator, ready to run: of {@link Session#load(byte[], LoadOptions)}.
 *
 * <p>Closing, or the end of the session, destroys it.
 */
public final class Network implements AutoCloseable {
  private final Guest guest;
  private final dev.nnpa.network.v1.Network message;
  private boolean closed;

  private Network(Guest guest, dev.nnpa.network.v1.Network message) {
    this.guest = guest;
    this.message = message;
  }

  /** Creates and initialises a network of a model: ai_name_create, ai_name_init. */
  static Network load(Guest guest, CreateNetworkHeader.Builder header, ByteString model) {
    if (header.getCName().isEmpty()) {
      header.setCName("network_" + guest.newId());
    }
    header.setSession(guest.name);
    CreateNetworkResponse created = create(guest, header, model);
    if (!created.hasNetwork()) {
      throw new NetworkException(created.getError());
    }
    Network network = new Network(guest, created.getNetwork());
    try {
      network.init();
    } catch (RuntimeException error) {
      network.close();
      throw error;
    }
    return network;
  }

  private static CreateNetworkResponse create(
      Guest guest, CreateNetworkHeader.Builder header, ByteString model) {
    CreateNetworkRequest first = CreateNetworkRequest.newBuilder().setHeader(header).build();
    Upload<CreateNetworkRequest, CreateNetworkResponse> upload =
        new Upload<>(
            Upload.parts(
                first,
                chunk -> CreateNetworkRequest.newBuilder().setChunk(chunk).build(),
                List.of(model)));
    return guest.transport.call(
        NetworkServiceGrpc::newStub, stub -> upload.answer(stub::createNetwork));
  }

  private <T> T call(Function<NetworkServiceBlockingStub, T> method) {
    return guest.transport.call(NetworkServiceGrpc::newBlockingStub, method);
  }

  /** Returns a request with the names of session and network. */
  private <B extends Message.Builder> B named(B request) {
    Descriptor type = request.getDescriptorForType();
    request.setField(type.findFieldByName("session"), guest.name);
    request.setField(type.findFieldByName("network"), message.getName());
    return request;
  }

  /** Binds the model's own weights, and activations of the size that the report asks for. */
  private void init() {
    var request = named(InitNetworkRequest.newBuilder());
    request.getParamsBuilder().setParams(Buffer.getDefaultInstance());
    Buffer.Builder activations = request.getParamsBuilder().getActivationsBuilder();
    activations.setChannels(report().getActivations().getChannels()).setData(ByteString.EMPTY);
    if (!call(stub -> stub.initNetwork(request.build())).getOk()) {
      throw refusal();
    }
  }

  /** Returns the first error of the network, and clears it: ai_name_get_error. */
  private NetworkException refusal() {
    GetNetworkErrorRequest request = named(GetNetworkErrorRequest.newBuilder()).build();
    return new NetworkException(call(stub -> stub.getNetworkError(request)).getError());
  }

  /** Returns the C name. */
  public String cName() {
    return message.getCName();
  }

  /** Returns the machine that the network runs on, for example "telum2". */
  public String machine() {
    return message.getMachine();
  }

  /** Returns 32 hex digits of the hash of the model. */
  public String modelSignature() {
    return message.getModelSignature();
  }

  /** Returns the inputs in the model's order: names, types, shapes, in which -1 is a free dim. */
  public List<Port> inputs() {
    return message.getInputsList();
  }

  /** Returns the outputs in the model's order. */
  public List<Port> outputs() {
    return message.getOutputsList();
  }

  /**
   * Runs once over an array for each input, by name, and returns the outputs by name. The first
   * range violation is a warning of the session. Throws IllegalArgumentException for a wrong name,
   * type or shape, before the wire.
   */
  public Map<String, NetworkArray> run(Map<String, NetworkArray> inputs) {
    Inference inference = infer(inputs);
    inference.violations().stream()
        .limit(1)
        .forEach(violation -> guest.listener.accept(warning(violation)));
    return inference.outputs();
  }

  private static ZdnnWarning warning(NodeViolation violation) {
    String op = violation.getFunction() + " (node " + violation.getNode() + ")";
    return new ZdnnWarning(violation.getZdnnStatus(), op, RangeViolation.getDefaultInstance());
  }

  /** Runs once and returns outputs with diagnostics, without warnings. */
  public Inference infer(Map<String, NetworkArray> inputs) {
    requireOpen();
    var request = named(InferNetworkRequest.newBuilder()).addAllInputs(encoded(inputs)).build();
    InferNetworkResponse answer = call(stub -> stub.inferNetwork(request));
    Map<String, NetworkArray> outputs = new LinkedHashMap<>();
    for (NamedArray output : answer.getOutputsList()) {
      outputs.put(output.getName(), NetworkArray.decode(output));
    }
    return new Inference(
        outputs, answer.getViolationsList(), answer.getNansMap(), answer.getCallsMap());
  }

  private List<NamedArray> encoded(Map<String, NetworkArray> inputs) {
    List<String> expected = inputs().stream().map(Port::getName).toList();
    TreeSet<String> unknown = new TreeSet<>(inputs.keySet());
    unknown.removeAll(expected);
    if (!unknown.isEmpty()) {
      String got = "inputs: got " + String.join(", ", unknown);
      throw new IllegalArgumentException(got + ", expected " + String.join(", ", expected));
    }
    return inputs().stream().map(port -> encoded(port, inputs.get(port.getName()))).toList();
  }

  private static NamedArray encoded(Port port, NetworkArray array) {
    if (array == null) {
      throw new IllegalArgumentException(
          "input " + port.getName() + " is missing, expected " + NetworkArray.describe(port));
    }
    return array.encode(port);
  }

  /**
   * Runs the model at edge sizes, over degenerate inputs, on machines, or on both Telums where the
   * list is empty, and says where it gives NaN, violates the range or meets a limit. Without sizes,
   * free dims are those around 1, 32, 64 and 128.
   */
  public List<ProbeRun> probe(List<Integer> sizes, List<String> machines) {
    requireOpen();
    var request = named(ProbeNetworkRequest.newBuilder()).addAllSizes(sizes);
    request.addAllMachines(machines);
    return ProbeRun.listOf(call(stub -> stub.probeNetwork(request.build())).getJson());
  }

  /**
   * Returns the network's report: its nodes say where each was placed, and why one is on the host.
   * {@link Descriptions} says it in one line.
   */
  public NetworkReport report() {
    requireOpen();
    GetNetworkInfoRequest request = named(GetNetworkInfoRequest.newBuilder()).build();
    GetNetworkInfoResponse answer = call(stub -> stub.getNetworkInfo(request));
    if (!answer.getOk()) {
      throw refusal();
    }
    return answer.getReport();
  }

  private void requireOpen() {
    if (closed) {
      throw new IllegalStateException(
          "network " + cName() + ": is closed, session.load loads it again");
    }
  }

  /** Destroys the network. May be repeated, and after the end of its session. */
  @Override
  public void close() {
    if (closed) {
      return;
    }
    closed = true;
    DestroyNetworkRequest request = named(DestroyNetworkRequest.newBuilder()).build();
    try {
      call(stub -> stub.destroyNetwork(request));
    } catch (TransportException gone) {
      System.getLogger("dev.nnpa")
          .log(System.Logger.Level.DEBUG, "the network was gone already", gone);
    }
  }

  /** Returns name, machine, inputs and outputs, in one line. */
  @Override
  public String toString() {
    String ports = described(inputs()) + " -> " + described(outputs());
    return "Network[" + cName() + " on " + machine() + ": " + ports + "]";
  }

  private static String described(List<Port> ports) {
    return ports.stream().map(NetworkArray::describe).collect(Collectors.joining(", "));
  }
}
