// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"nnpa.dev/nnpa/zdnn"
)

// count returns 0 to 127, again and again.
func count(elements int) []float32 {
	data := make([]float32, elements)
	for i := range data {
		data[i] = float32(i & 0x7F)
	}
	return data
}

// free frees the buffers of ztensors.
func free(ctx context.Context, ztensors ...*zdnn.Ztensor) error {
	for _, ztensor := range ztensors {
		if err := zdnn.FreeZtensorBuffer(ctx, ztensor); err != nil {
			return err
		}
	}
	return nil
}

// add is the "Example flow of an application calling the zDNN APIs": two ztensors and their sum.
func add(ctx context.Context, s *zdnn.Session) ([][]float32, error) {
	data := count(1 * 32 * 32 * 3)
	dataOut := make([]float32, len(data))

	preTfrmdDesc, err := zdnn.InitPreTransformedDesc(zdnn.ZDNN_NHWC, zdnn.FP32, 1, 32, 32, 3)
	if err != nil {
		return nil, err
	}
	tfrmdDesc, err := zdnn.GenerateTransformedDesc(preTfrmdDesc)
	if err != nil {
		return nil, err
	}
	var ztensors [3]*zdnn.Ztensor
	for i := range ztensors {
		if ztensors[i], err = s.InitZtensorWithMalloc(ctx, preTfrmdDesc, tfrmdDesc); err != nil {
			return nil, err
		}
	}
	a, b, out := ztensors[0], ztensors[1], ztensors[2]
	if err := zdnn.TransformZtensor(ctx, a, data); err != nil {
		return nil, err
	}
	if err := zdnn.TransformZtensor(ctx, b, data); err != nil {
		return nil, err
	}
	if _, err := zdnn.Add(ctx, a, b, out); err != nil {
		return nil, err
	}
	if _, err := zdnn.TransformOrigtensor(ctx, out, dataOut); err != nil {
		return nil, err
	}
	return [][]float32{dataOut}, free(ctx, a, b, out)
}
