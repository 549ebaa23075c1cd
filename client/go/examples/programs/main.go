// SPDX-License-Identifier: Apache-2.0

// The ten example programs of the zDNN API Reference 1.2.0, call by call: go run ./examples/programs
// SERVER [program...]. A line of JSON per program is printed: its name, and the FP32 words of each
// array that it ends with.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"

	"nnpa.dev/nnpa/zdnn"
)

var programs = map[string]func(context.Context, *zdnn.Session) ([][]float32, error){
	"add":                            add,
	"gru_forward":                    gruForward,
	"lstm_bidirectional":             lstmBidirectional,
	"lstm_forward":                   lstmForward,
	"lstm_multi_layer_bidirectional": lstmMultiLayerBidirectional,
	"quantized_matmul": func(ctx context.Context, s *zdnn.Session) ([][]float32, error) {
		return quantizedMatmul(ctx, s, false, false)
	},
	"quantized_matmul_on_the_fly": func(ctx context.Context, s *zdnn.Session) ([][]float32, error) {
		return quantizedMatmul(ctx, s, true, false)
	},
	"quantized_matmul_pre_computed": func(ctx context.Context, s *zdnn.Session) ([][]float32, error) {
		return quantizedMatmul(ctx, s, false, true)
	},
	"quantized_matmul_pre_computed_on_the_fly": func(
		ctx context.Context, s *zdnn.Session,
	) ([][]float32, error) {
		return quantizedMatmul(ctx, s, true, true)
	},
	"quantized_ztensor": quantizedZtensor,
}

type results struct {
	Name    string     `json:"name"`
	Results [][]string `json:"results"`
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: programs SERVER [program...]")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run runs the named programs, or all, each in its own session.
func run(ctx context.Context, server string, names []string) error {
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(programs))
	}
	for _, name := range names {
		program, ok := programs[name]
		if !ok {
			return fmt.Errorf("%s: no program", name)
		}
		arrays, err := inSession(ctx, server, program)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		report := results{Name: name}
		for _, array := range arrays {
			words := []string{}
			for _, element := range array {
				words = append(words, fmt.Sprintf("%08X", math.Float32bits(element)))
			}
			report.Results = append(report.Results, words)
		}
		if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
			return err
		}
	}
	return nil
}

func inSession(
	ctx context.Context, server string, program func(context.Context, *zdnn.Session) ([][]float32, error),
) (arrays [][]float32, err error) {
	s, err := zdnn.Connect(ctx, server, zdnn.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return program(ctx, s)
}
