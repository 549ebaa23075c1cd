// SPDX-License-Identifier: Apache-2.0

// A fully connected layer and its tanh with embARC MLI's fixed-point kernels, in one request:
// go run ./examples/mli SERVER.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"nnpa.dev/nnpa/mli"
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

func run(ctx context.Context, server string, out io.Writer) (err error) {
	s, err := zdnn.Connect(ctx, server, zdnn.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	library, err := mli.New(s, mli.Options{})
	if err != nil {
		return err
	}
	sums, curve, err := layer(ctx, library)
	if err != nil {
		return err
	}
	for _, tensor := range []*mli.Tensor{sums, curve} {
		values, err := mli.Dequantise(tensor)
		if err != nil {
			return err
		}
		for _, value := range values {
			fmt.Fprintf(out, "%g ", value)
		}
		fmt.Fprintln(out)
	}
	return nil
}

// layer runs two neurons over four values, 16-bit data with 8-bit weights, and tanh of their sums.
func layer(ctx context.Context, library *mli.Library) (sums, curve *mli.Tensor, err error) {
	in, inErr := mli.Quantise([]float64{1, 0.5, -0.5, 0}, mli.FX_16, 14)
	weights, weightsErr := mli.Quantise([]float64{1, 1, 1, 1, 0.5, -0.5, 0.5, -0.5}, mli.FX_8, 6, 2, 4)
	bias, biasErr := mli.Quantise([]float64{0.25, 0}, mli.FX_8, 5)
	if err := errors.Join(inErr, weightsErr, biasErr); err != nil {
		return nil, nil, err
	}
	err = library.Batch(ctx, func() error {
		sums, err = library.KrnFullyConnectedFx8w16d(ctx, in, weights, bias, mli.Empty(2, mli.FX_16, 12))
		if err != nil {
			return err
		}
		curve, err = library.KrnTanhFx16(ctx, sums, nil)
		return err
	})
	return sums, curve, err
}
