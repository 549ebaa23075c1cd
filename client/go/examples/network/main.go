// SPDX-License-Identifier: Apache-2.0

// An ONNX model of FP32 inputs as a hosted network: go run ./examples/network SERVER MODEL.onnx feeds it
// with ones, and prints what comes out.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"nnpa.dev/nnpa/zdnn"
)

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

func run(ctx context.Context, server, path string, out io.Writer) (err error) {
	s, err := zdnn.Connect(ctx, server, zdnn.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	net, err := s.LoadFile(ctx, path, zdnn.LoadOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, net.Close()) }()
	report, err := net.Report(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%v\n%v\n", net, report)
	outputs, err := net.Run(ctx, filledWithOnes(net))
	for name, array := range outputs {
		fmt.Fprintln(out, name, array.Shape, array.Data)
	}
	return err
}

// filledWithOnes returns an array of ones for every input; dims that are free are 1.
func filledWithOnes(net *zdnn.Network) map[string]zdnn.Array {
	inputs := map[string]zdnn.Array{}
	for _, port := range net.Inputs() {
		shape, count := []int64{}, int64(1)
		for _, size := range port.Shape {
			shape, count = append(shape, max(1, size)), count*max(1, size)
		}
		ones := make([]float32, count)
		for i := range ones {
			ones[i] = 1
		}
		inputs[port.Name] = zdnn.Array{Data: ones, Shape: shape}
	}
	return inputs
}
