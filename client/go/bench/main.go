// SPDX-License-Identifier: Apache-2.0

// What the SDK costs: go run ./bench SERVER ECHO prints the median microseconds of one small add and
// of a list of a hundred, each with those of a bare echo of as many bytes on the same kind of
// connection, as one JSON object. ECHO is a server of nnpa.bench.Echo.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
	"nnpa.dev/nnpa/zdnn"
)

const (
	rows, columns = 32, 64
	listed        = 100
	repetitions   = 400
)

type figures struct {
	Add          float64 `json:"add_us"`
	AddEcho      float64 `json:"add_echo_us"`
	Pipeline     float64 `json:"pipeline_us"`
	PipelineEcho float64 `json:"pipeline_echo_us"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: bench SERVER ECHO")
		os.Exit(2)
	}
	result, err := measure(context.Background(), os.Args[1], os.Args[2])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, server, echo string) (medians *figures, err error) {
	s, err := zdnn.Connect(ctx, server, zdnn.Options{})
	if err != nil {
		return nil, err
	}
	bare, err := zdnn.Dial(echo, zdnn.Options{})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	defer func() { err = errors.Join(err, s.Close(), bare.Close()) }()
	add, err := adding(ctx, s)
	if err != nil {
		return nil, err
	}
	list := func() error {
		_, err := s.Pipeline(ctx, func() (err error) {
			for i := 0; i < listed && err == nil; i++ {
				err = add()
			}
			return err
		})
		return err
	}
	medians = &figures{}
	if medians.Add, medians.AddEcho, err = pair(add, echoing(ctx, bare, requestBytes(s, 1))); err != nil {
		return nil, err
	}
	back := echoing(ctx, bare, requestBytes(s, listed))
	medians.Pipeline, medians.PipelineEcho, err = pair(list, back)
	return medians, err
}

// adding returns what adds two ztensors into a third.
func adding(ctx context.Context, s *zdnn.Session) (func() error, error) {
	var operands [3]*zdnn.Ztensor
	for i := range operands {
		data, err := make([]float32, rows*columns), error(nil)
		if operands[i], err = zdnn.NewZtensor(ctx, s, zdnn.ZDNN_2D, data, rows, columns); err != nil {
			return nil, err
		}
	}
	return func() error {
		_, err := zdnn.Add(ctx, operands[0], operands[1], operands[2])
		return err
	}, nil
}

// echoing returns what has as many bytes sent back.
func echoing(ctx context.Context, bare *grpc.ClientConn, size int) func() error {
	payload := &wrapperspb.BytesValue{Value: make([]byte, size)}
	return func() error {
		return bare.Invoke(ctx, "/nnpa.bench.Echo/Raw", payload, &wrapperspb.BytesValue{})
	}
}

// requestBytes returns the size of a request of as many adds.
func requestBytes(s *zdnn.Session, count int) int {
	ref := &zdnnv1.TensorRef{Tensor: &zdnnv1.TensorRef_Id{Id: 1}}
	add := &zdnnv1.Add{InputA: ref, InputB: ref, Output: ref}
	operation := &zdnnv1.Operation{Operation: &zdnnv1.Operation_Add{Add: add}}
	request := &zdnnv1.ExecuteRequest{Session: s.Message().Name}
	for range count {
		request.Operations = append(request.Operations, operation)
	}
	return proto.Size(request)
}

// pair returns the median microseconds of two pieces of work that are done in turns.
func pair(work, reference func() error) (float64, float64, error) {
	var times [2][]float64
	for repetition := range repetitions + repetitions/10 { // the first tenth warms up
		for i, timed := range []func() error{work, reference} {
			began := time.Now()
			if err := timed(); err != nil {
				return 0, 0, err
			}
			if repetition >= repetitions/10 {
				times[i] = append(times[i], float64(time.Since(began).Nanoseconds())/1e3)
			}
		}
	}
	for _, samples := range times {
		slices.Sort(samples)
	}
	return times[0][repetitions/2], times[1][repetitions/2], nil
}
