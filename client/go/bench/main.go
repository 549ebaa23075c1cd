// SPDX-License-Identifier: Apache-2.0

// The cost of the SDK: go run ./bench SERVER ECHO prints the median microseconds of one small add and of
// a list of a hundred, over the session's stream and as unary calls, each beside a bare echo of the same
// size on the same kind of connection, as one JSON object. ECHO is a server of nnpa.bench.Echo.
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

func measure(ctx context.Context, server, echo string) (medians map[string]float64, err error) {
	bare, err := zdnn.Dial(echo, zdnn.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bare.Close()) }()
	adds, lists := map[string]func() error{}, map[string]func() error{}
	for way, options := range map[string]zdnn.Options{"": {}, "_unary": {Plain: true}} {
		s, connectErr := zdnn.Connect(ctx, server, options)
		if connectErr != nil {
			return nil, connectErr
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		if adds["add"+way+"_us"], lists["pipeline"+way+"_us"], err = adding(ctx, s); err != nil {
			return nil, err
		}
		adds["add_echo_us"] = echoing(ctx, bare, requestBytes(s, 1))
		lists["pipeline_echo_us"] = echoing(ctx, bare, requestBytes(s, listed))
	}
	medians = map[string]float64{}
	return medians, errors.Join(measureInTurns(adds, medians), measureInTurns(lists, medians))
}

// adding returns a function that adds two ztensors into a third, and one that does so in a list of a
// hundred.
func adding(ctx context.Context, s *zdnn.Session) (add, list func() error, err error) {
	var operands [3]*zdnn.Ztensor
	for i := range operands {
		data := make([]float32, rows*columns)
		if operands[i], err = zdnn.NewZtensor(ctx, s, zdnn.ZDNN_2D, data, rows, columns); err != nil {
			return nil, nil, err
		}
	}
	add = func() error {
		_, err := zdnn.Add(ctx, operands[0], operands[1], operands[2])
		return err
	}
	list = func() error {
		_, err := s.Pipeline(ctx, func() (err error) {
			for i := 0; i < listed && err == nil; i++ {
				err = add()
			}
			return err
		})
		return err
	}
	return add, list, nil
}

// echoing returns a function that has a message of a size sent back.
func echoing(ctx context.Context, bare *grpc.ClientConn, size int) func() error {
	payload := &wrapperspb.BytesValue{Value: make([]byte, size)}
	return func() error {
		return bare.Invoke(ctx, "/nnpa.bench.Echo/Raw", payload, &wrapperspb.BytesValue{})
	}
}

// requestBytes returns the size of a request of count adds.
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

// measureInTurns sets the median microseconds of pieces of work, by name, that are done in turns.
func measureInTurns(works map[string]func() error, medians map[string]float64) error {
	times := map[string][]float64{}
	for repetition := range repetitions + repetitions/10 { // the first tenth warms up
		for name, work := range works {
			began := time.Now()
			if err := work(); err != nil {
				return err
			}
			if repetition >= repetitions/10 {
				times[name] = append(times[name], float64(time.Since(began).Nanoseconds())/1e3)
			}
		}
	}
	for name, samples := range times {
		slices.Sort(samples)
		medians[name] = samples[repetitions/2]
	}
	return nil
}
