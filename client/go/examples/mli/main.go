// SPDX-License-Identifier: Apache-2.0

// A fully connected layer and its tanh with embARC MLI's fixed-point kernels, in one call:
// go run ./examples/mli SERVER.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	mliv1 "nnpa.dev/nnpa/gen/nnpa/mli/v1"
	"nnpa.dev/nnpa/zdnn"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: mli SERVER")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// fixed returns a tensor of FX_8 or FX_16 elements, of which fracBits are behind the point.
func fixed[T int8 | int16](fracBits int32, shape []uint32, elements ...T) *mliv1.TensorRef {
	kind := mliv1.ElType_MLI_EL_FX_8
	if binary.Size(T(0)) == 2 {
		kind = mliv1.ElType_MLI_EL_FX_16
	}
	data, _ := binary.Append(nil, binary.LittleEndian, elements) // of integers it cannot fail
	return &mliv1.TensorRef{Tensor: &mliv1.TensorRef_Inline{Inline: &mliv1.Tensor{
		Memory: &mliv1.Tensor_Data{Data: data}, Shape: shape, ElType: kind,
		ElParams: &mliv1.Tensor_Fx{Fx: &mliv1.FxParams{FracBits: fracBits}},
	}}}
}

// room returns a tensor for a result.
func room(size uint32, fracBits int32) *mliv1.TensorRef {
	return &mliv1.TensorRef{Tensor: &mliv1.TensorRef_Inline{Inline: &mliv1.Tensor{
		Memory:   &mliv1.Tensor_ZeroBytes{ZeroBytes: size},
		ElParams: &mliv1.Tensor_Fx{Fx: &mliv1.FxParams{FracBits: fracBits}},
	}}}
}

// network returns a fully connected layer, and tanh of what comes out of it.
func network() []*mliv1.Kernel {
	dense := &mliv1.FullyConnected{
		In:      fixed[int16](14, []uint32{4}, 1<<14, 1<<13, -1<<13, 0), // 1, 0.5, -0.5, 0
		Weights: fixed[int8](6, []uint32{2, 4}, 64, 64, 64, 64, 32, -32, 32, -32),
		Bias:    fixed[int8](5, []uint32{2}, 8, 0), // 0.25, 0
		Out:     room(4, 12),
	}
	tanh := &mliv1.Activation{
		In: &mliv1.TensorRef{Tensor: &mliv1.TensorRef_OutputOf{
			OutputOf: &mliv1.Place{KernelIndex: new(uint32), Field: "out"},
		}},
		Out: room(4, 0),
	}
	return []*mliv1.Kernel{
		{Kernel: &mliv1.Kernel_KrnFullyConnectedFx8W16D{KrnFullyConnectedFx8W16D: dense}},
		{Kernel: &mliv1.Kernel_KrnTanhFx16{KrnTanhFx16: tanh}},
	}
}

func run(ctx context.Context, server string, out io.Writer) (err error) {
	conn, err := zdnn.Dial(server, zdnn.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	request := &mliv1.RunKernelRequest{Kernels: network()}
	answer, err := mliv1.NewMliServiceClient(conn).RunKernel(ctx, request)
	if err != nil {
		return zdnn.ExplainError(err)
	}
	for _, result := range answer.Results {
		if refusal := result.Refusal; refusal != nil {
			return fmt.Errorf("%v: %s", result.MliStatus, refusal.Text)
		}
		for _, output := range result.Outputs {
			if err := show(out, output.Tensor); err != nil {
				return err
			}
		}
	}
	return nil
}

// show prints the elements of an FX_16 tensor as numbers.
func show(out io.Writer, tensor *mliv1.Tensor) error {
	elements := make([]int16, len(tensor.GetData())/2)
	if _, err := binary.Decode(tensor.GetData(), binary.LittleEndian, elements); err != nil {
		return err
	}
	for _, element := range elements {
		fmt.Fprintf(out, "%g ", float64(element)/float64(uint64(1)<<tensor.GetFx().FracBits))
	}
	_, err := fmt.Fprintln(out)
	return err
}
