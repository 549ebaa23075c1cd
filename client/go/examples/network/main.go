// SPDX-License-Identifier: Apache-2.0

// An ONNX model as a hosted network, with the life cycle of X-CUBE-AI: create, init, run, destroy.
// go run ./examples/network SERVER MODEL.onnx feeds it with ones, and prints what comes out.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	networkv1 "nnpa.dev/nnpa/gen/nnpa/network/v1"
	"nnpa.dev/nnpa/zdnn"
)

const chunkBytes = 1 << 20

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: network SERVER MODEL.onnx")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// hosted is a network of a session.
type hosted struct {
	api     networkv1.NetworkServiceClient
	session string
	network *networkv1.Network
}

func run(ctx context.Context, server, path string, out io.Writer) (err error) {
	model, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	s, err := zdnn.Connect(ctx, server, zdnn.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	h := &hosted{api: networkv1.NewNetworkServiceClient(s.Conn()), session: s.Message().Name}
	ctx = s.WithTicket(ctx) // behind a proxy: to the session's server
	if err := h.create(ctx, model); err != nil {
		return err
	}
	if err := h.init(ctx); err != nil {
		return err
	}
	answer, err := h.api.InferNetwork(ctx, &networkv1.InferNetworkRequest{
		Session: h.session, Network: h.network.Name, Inputs: filledWithOnes(h.network.Inputs),
	})
	if err != nil {
		return zdnn.ExplainError(err)
	}
	for _, output := range answer.Outputs {
		if err := show(out, output); err != nil {
			return err
		}
	}
	_, err = h.api.DestroyNetwork(ctx, &networkv1.DestroyNetworkRequest{
		Session: h.session, Network: h.network.Name,
	})
	return zdnn.ExplainError(err)
}

// create sends the model: ai_<name>_create.
func (h *hosted) create(ctx context.Context, model []byte) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := h.api.CreateNetwork(ctx)
	if err != nil {
		return zdnn.ExplainError(err)
	}
	header := &networkv1.CreateNetworkHeader{
		Session: h.session,
		Source:  &networkv1.CreateNetworkHeader_OnnxBytes{OnnxBytes: uint64(len(model))},
	}
	err = stream.Send(&networkv1.CreateNetworkRequest{
		Message: &networkv1.CreateNetworkRequest_Header{Header: header},
	})
	for at := 0; at < len(model) && err == nil; at += chunkBytes {
		chunk := model[at:min(at+chunkBytes, len(model))]
		err = stream.Send(&networkv1.CreateNetworkRequest{
			Message: &networkv1.CreateNetworkRequest_Chunk{Chunk: chunk},
		})
	}
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: the answer is there already
		return zdnn.ExplainError(err)
	}
	created, err := stream.CloseAndRecv()
	if err != nil {
		return zdnn.ExplainError(err)
	}
	h.network = created.Network
	return aiError(created.Error)
}

// init binds the model's own weights, and activations of the size that the report asks for:
// ai_<name>_init.
func (h *hosted) init(ctx context.Context) error {
	reply, err := h.api.GetNetworkInfo(ctx, &networkv1.GetNetworkInfoRequest{
		Session: h.session, Network: h.network.Name,
	})
	if err != nil {
		return zdnn.ExplainError(err)
	}
	activations := &networkv1.Buffer{
		Channels: reply.GetReport().GetActivations().GetChannels(), Data: []byte{},
	}
	initialised, err := h.api.InitNetwork(ctx, &networkv1.InitNetworkRequest{
		Session: h.session, Network: h.network.Name,
		Params: &networkv1.NetworkParams{Params: &networkv1.Buffer{}, Activations: activations},
	})
	if err != nil {
		return zdnn.ExplainError(err)
	}
	if initialised.Ok {
		return nil
	}
	failed, err := h.api.GetNetworkError(ctx, &networkv1.GetNetworkErrorRequest{
		Session: h.session, Network: h.network.Name,
	})
	return errors.Join(zdnn.ExplainError(err), aiError(failed.GetError()))
}

func aiError(reply *networkv1.AiError) error {
	if reply.GetType() == networkv1.AiErrorType_AI_ERROR_NONE {
		return nil
	}
	return fmt.Errorf("%v / %v: %s", reply.Type, reply.Code, reply.Text)
}

// ones returns an array of ones for every input; dims that are free are 1.
func filledWithOnes(inputs []*networkv1.Port) []*networkv1.NamedArray {
	var arrays []*networkv1.NamedArray
	for _, input := range inputs {
		array := &networkv1.NamedArray{Name: input.Name, Dtype: "float32"}
		count := int64(1)
		for _, size := range input.Shape {
			array.Shape = append(array.Shape, max(1, size))
			count *= max(1, size)
		}
		element := binary.LittleEndian.AppendUint32(nil, 0x3F800000) // 1 in FP32
		for range count {
			array.Data = append(array.Data, element...)
		}
		arrays = append(arrays, array)
	}
	return arrays
}

// show prints the elements of a float32 output, of others their bytes.
func show(out io.Writer, array *networkv1.NamedArray) error {
	if array.Dtype != "float32" {
		_, err := fmt.Fprintf(out, "%s %s %v %x\n", array.Name, array.Dtype, array.Shape, array.Data)
		return err
	}
	elements := make([]float32, len(array.Data)/4)
	if _, err := binary.Decode(array.Data, binary.LittleEndian, elements); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%s %v %v\n", array.Name, array.Shape, elements)
	return err
}
