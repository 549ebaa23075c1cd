// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	networkv1 "nnpa.dev/nnpa/gen/nnpa/network/v1"
)

// LoadOptions are options of compiling a model; see the comments of CreateOptions in the wire contract.
type LoadOptions struct {
	// CName is the C name; "" stands for a new name in the session.
	CName string
	// Placement is how much goes to the accelerator; its zero value is PLACEMENT_COMPILER.
	Placement networkv1.Placement
	// StrictPlacement refuses a model with a node on the host.
	StrictPlacement bool
	// OffloadInteger runs integer products on the accelerator, which rounds.
	OffloadInteger bool
	// Overflow chooses the result of values beyond DLFLOAT16; its zero value is OVERFLOW_SATURATE.
	Overflow networkv1.Overflow
	// PublishAs offers the model under this name to every session of the server.
	PublishAs string
}

// Network is a model on the accelerator, ready to run. Close, or the end of the session, destroys it.
type Network struct {
	session *Session
	api     networkv1.NetworkServiceClient
	message *networkv1.Network
	closed  bool
}

// Inference is the result of one run: outputs by name, and its diagnostics.
type Inference struct {
	Outputs map[string]Array
	// Violations are values that are not numbers, which the accelerator used or stored.
	Violations []*networkv1.NodeViolation
	// Nans counts the NaN elements of each output, Calls the calls of each zDNN function.
	Nans, Calls map[string]uint64
}

// NetworkError says that the client API of a hosted network refuses, by ST's type and code.
type NetworkError struct {
	Type networkv1.AiErrorType
	Code networkv1.AiErrorCode
	Text string
}

func (e *NetworkError) Error() string {
	return fmt.Sprintf("%v / %v (0x%02X, 0x%02X): %s", e.Type, e.Code, int32(e.Type), int32(e.Code), e.Text)
}

func newNetworkError(reply *networkv1.AiError) *NetworkError {
	return &NetworkError{Type: reply.GetType(), Code: reply.GetCode(), Text: reply.GetText()}
}

// LoadFile hosts the ONNX model of a file; see Load.
func (s *Session) LoadFile(ctx context.Context, path string, options LoadOptions) (*Network, error) {
	model, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return s.Load(ctx, model, options)
}

// Load hosts an ONNX model, the bytes of its file, and returns it, ready to run. The error may be a
// *NetworkError, for a refusal of the client API, or a *TransportError, for a model that cannot be
// hosted.
func (s *Session) Load(ctx context.Context, model []byte, options LoadOptions) (*Network, error) {
	source := &networkv1.CreateNetworkHeader_OnnxBytes{OnnxBytes: uint64(len(model))}
	return s.host(ctx, &networkv1.CreateNetworkHeader{Source: source}, model, options)
}

// LoadPublished hosts the model that the server offers by this name; see Load.
func (s *Session) LoadPublished(ctx context.Context, name string, options LoadOptions) (*Network, error) {
	source := &networkv1.CreateNetworkHeader_Published{Published: name}
	return s.host(ctx, &networkv1.CreateNetworkHeader{Source: source}, nil, options)
}

func (s *Session) host(
	ctx context.Context, header *networkv1.CreateNetworkHeader, model []byte, options LoadOptions,
) (*Network, error) {
	if s.conn == nil {
		return nil, errors.New("session: of NewSession, expected one of Connect, which has a connection")
	}
	header.Session, header.CName, header.PublishAs = s.message.Name, options.CName, options.PublishAs
	if header.CName == "" {
		header.CName = fmt.Sprintf("network_%d", s.NewID())
	}
	header.Options = &networkv1.CreateOptions{
		StrictPlacement: options.StrictPlacement, OffloadInteger: options.OffloadInteger,
		Overflow: options.Overflow, Placement: options.Placement,
	}
	n := &Network{session: s, api: networkv1.NewNetworkServiceClient(s.conn)}
	if err := n.create(ctx, header, model); err != nil {
		return nil, err
	}
	if err := n.init(ctx); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// create sends the model: ai_<name>_create.
func (n *Network) create(ctx context.Context, header *networkv1.CreateNetworkHeader, model []byte) error {
	first := &networkv1.CreateNetworkRequest{Message: &networkv1.CreateNetworkRequest_Header{Header: header}}
	wrap := func(chunk []byte) *networkv1.CreateNetworkRequest {
		return &networkv1.CreateNetworkRequest{Message: &networkv1.CreateNetworkRequest_Chunk{Chunk: chunk}}
	}
	created, err := upload(n.session.WithTicket(ctx), n.api.CreateNetwork, first, [][]byte{model}, wrap)
	switch {
	case err != nil:
		return n.session.explain(ctx, err)
	case created.Network == nil:
		return newNetworkError(created.Error)
	}
	n.message = created.Network
	return nil
}

// init binds the model's own weights, and activations of the size that the report asks for:
// ai_<name>_init.
func (n *Network) init(ctx context.Context) error {
	report, err := n.Report(ctx)
	if err != nil {
		return err
	}
	activations := &networkv1.Buffer{Channels: report.GetActivations().GetChannels(), Data: []byte{}}
	answer, err := n.api.InitNetwork(n.session.WithTicket(ctx), &networkv1.InitNetworkRequest{
		Session: n.session.message.Name, Network: n.message.Name,
		Params: &networkv1.NetworkParams{Params: &networkv1.Buffer{}, Activations: activations},
	})
	if err != nil {
		return n.session.explain(ctx, err)
	}
	if !answer.Ok {
		return n.refusal(ctx)
	}
	return nil
}

// refusal returns the first error of the network, and clears it: ai_<name>_get_error.
func (n *Network) refusal(ctx context.Context) error {
	request := &networkv1.GetNetworkErrorRequest{Session: n.session.message.Name, Network: n.message.Name}
	answer, err := n.api.GetNetworkError(n.session.WithTicket(ctx), request)
	if err != nil {
		return n.session.explain(ctx, err)
	}
	return newNetworkError(answer.Error)
}

// CName returns the C name.
func (n *Network) CName() string { return n.message.CName }

// Machine returns the machine that the network runs on, for example "telum2".
func (n *Network) Machine() string { return n.message.Machine }

// ModelSignature returns 32 hex digits of the hash of the model.
func (n *Network) ModelSignature() string { return n.message.ModelSignature }

// Inputs returns the inputs in the model's order: names, types, shapes, in which -1 is a free dim.
func (n *Network) Inputs() []*networkv1.Port { return n.message.Inputs }

// Outputs returns the outputs in the model's order.
func (n *Network) Outputs() []*networkv1.Port { return n.message.Outputs }

// String returns name, machine, inputs and outputs, in one line.
func (n *Network) String() string {
	return fmt.Sprintf("Network(%s on %s: %s -> %s)",
		n.CName(), n.Machine(), describePorts(n.message.Inputs), describePorts(n.message.Outputs))
}

// GoString is String, so that %#v shows no name of a session.
func (n *Network) GoString() string { return n.String() }

func describePorts(ports []*networkv1.Port) string {
	texts := make([]string, len(ports))
	for i, port := range ports {
		texts[i] = describePort(port)
	}
	return strings.Join(texts, ", ")
}

// Run runs once over an array for each input, by name, and returns the outputs by name. The first
// range violation is a warning: it goes to Options.Warn, whose error comes beside outputs that are valid.
// A wrong name, type or shape is refused before the wire.
func (n *Network) Run(ctx context.Context, inputs map[string]Array) (map[string]Array, error) {
	inference, err := n.Infer(ctx, inputs)
	if err != nil {
		return nil, err
	}
	if len(inference.Violations) == 0 {
		return inference.Outputs, nil
	}
	violation := inference.Violations[0]
	code := ZdnnStatus(violation.ZdnnStatus)
	return inference.Outputs, n.session.emit(&ZdnnWarning{
		Status: code, Name: statusName(code), Message: GetStatusMessage(code),
		Op: fmt.Sprintf("%s (node %s)", violation.Function, violation.Node),
	})
}

// Infer runs once and returns outputs with diagnostics, without warnings.
func (n *Network) Infer(ctx context.Context, inputs map[string]Array) (*Inference, error) {
	arrays, err := n.arrays(inputs)
	if err != nil {
		return nil, err
	}
	answer, err := n.api.InferNetwork(n.session.WithTicket(ctx), &networkv1.InferNetworkRequest{
		Session: n.session.message.Name, Network: n.message.Name, Inputs: arrays,
	})
	if err != nil {
		return nil, n.session.explain(ctx, err)
	}
	inference := &Inference{
		Outputs: map[string]Array{}, Violations: answer.Violations, Nans: answer.Nans, Calls: answer.Calls,
	}
	for _, output := range answer.Outputs {
		if inference.Outputs[output.Name], err = decode(output); err != nil {
			return nil, err
		}
	}
	return inference, nil
}

// arrays returns the inputs as messages, or the error of an input that is missing, unknown or does not
// fit.
func (n *Network) arrays(inputs map[string]Array) ([]*networkv1.NamedArray, error) {
	if n.closed {
		return nil, n.gone()
	}
	var arrays []*networkv1.NamedArray
	var expected []string
	for _, port := range n.message.Inputs {
		expected = append(expected, port.Name)
		array, ok := inputs[port.Name]
		if !ok {
			return nil, fmt.Errorf("input %s is missing, expected %s", port.Name, describePort(port))
		}
		named, err := encode(port, array)
		if err != nil {
			return nil, err
		}
		arrays = append(arrays, named)
	}
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		if !slices.Contains(expected, name) {
			return nil, fmt.Errorf("inputs: got %s, expected %s", name, strings.Join(expected, ", "))
		}
	}
	return arrays, nil
}

func (n *Network) gone() error {
	return fmt.Errorf("network %s: is closed, Session.Load loads it again", n.CName())
}

// NetworkReport describes a network: where each of its Nodes was placed, and why one is on the host.
type NetworkReport struct{ *networkv1.NetworkReport }

// String returns how many nodes are where, with the operators on the host.
func (r NetworkReport) String() string {
	counts := map[string]int{}
	var operators []string
	for _, node := range r.Nodes {
		counts[node.Device]++
		if node.Device == "host" && !slices.Contains(operators, node.OpType) {
			operators = append(operators, node.OpType)
		}
	}
	host := ""
	if len(operators) > 0 {
		host = " (" + strings.Join(operators, ", ") + ")"
	}
	return fmt.Sprintf("NetworkReport(%s on %s: %d nodes on the accelerator, %d on the host%s, %d folded)",
		r.ModelName, r.GetMachine(), counts["accelerator"], counts["host"], host, counts["folded"])
}

// Report returns the network's report: ai_<name>_get_info.
func (n *Network) Report(ctx context.Context) (NetworkReport, error) {
	if n.closed {
		return NetworkReport{}, n.gone()
	}
	request := &networkv1.GetNetworkInfoRequest{Session: n.session.message.Name, Network: n.message.Name}
	answer, err := n.api.GetNetworkInfo(n.session.WithTicket(ctx), request)
	if err != nil {
		return NetworkReport{}, n.session.explain(ctx, err)
	}
	if !answer.Ok {
		return NetworkReport{}, n.refusal(ctx)
	}
	return NetworkReport{answer.Report}, nil
}

// Close destroys the network. It may be repeated, and after the end of its session.
func (n *Network) Close() error {
	if n.closed || n.session.closed {
		n.closed = true
		return nil
	}
	n.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	request := &networkv1.DestroyNetworkRequest{Session: n.session.message.Name, Network: n.message.Name}
	_, err := n.api.DestroyNetwork(n.session.WithTicket(ctx), request)
	return ExplainError(err)
}
