// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math"

	"nnpa.dev/nnpa/zdnn"
)

// integers returns count small integers: element i is (i + start) * 5 modulo 13, less 6.
func integers[T int8 | float32](count uint32, start int) []T {
	data := make([]T, count)
	for i := range data {
		data[i] = T((i+start)*5%13 - 6)
	}
	return data
}

// quantized returns a quantized ztensor of scale 1 and offset 0 without data.
func quantized(
	ctx context.Context, s *zdnn.Session, transformType zdnn.QuantizedTransformTypes,
	kind zdnn.DataTypes, layout zdnn.DataLayouts, sizes ...uint32,
) (*zdnn.Ztensor, error) {
	preTfrmdDesc, err := zdnn.InitPreTransformedDesc(layout, kind, sizes...)
	if err != nil {
		return nil, err
	}
	tfrmdDesc, err := zdnn.GenerateQuantizedTransformedDesc(preTfrmdDesc, transformType)
	if err != nil {
		return nil, err
	}
	return s.InitQuantizedZtensorWithMalloc(ctx, preTfrmdDesc, tfrmdDesc, 1, 0)
}

// filled returns a quantized ztensor with FP32 data, as INT8 or as DLFLOAT16.
func filled(
	ctx context.Context, s *zdnn.Session, asDlfloat bool, data []float32,
	layout zdnn.DataLayouts, sizes ...uint32,
) (*zdnn.Ztensor, error) {
	transformType := zdnn.QUANTIZED_INT8
	if asDlfloat {
		transformType = zdnn.QUANTIZED_DLFLOAT16
	}
	ztensor, err := quantized(ctx, s, transformType, zdnn.FP32, layout, sizes...)
	if err != nil {
		return nil, err
	}
	if asDlfloat {
		return ztensor, zdnn.TransformZtensor(ctx, ztensor, data)
	}
	return ztensor, zdnn.TransformQuantizedZtensor(ctx, ztensor, false, math.MinInt8, math.MaxInt8, data)
}

// weightsOf returns INT8 weights.
func weightsOf(ctx context.Context, s *zdnn.Session, stacks, n, p uint32) (*zdnn.Ztensor, error) {
	weights, err := quantized(
		ctx, s, zdnn.QUANTIZED_WEIGHTS_INT8, zdnn.INT8, zdnn.ZDNN_3DS, stacks, n, p,
	)
	if err != nil {
		return nil, err
	}
	data := integers[int8](stacks*n*p, 1)
	return weights, zdnn.TransformQuantizedZtensor(ctx, weights, false, math.MinInt8, math.MaxInt8, data)
}

// quantizedMatmul is the "Example of calling the zdnn_quantized_matmul_op API": normal, or its input
// quantized on the fly, or its biases pre-computed, or both.
func quantizedMatmul(
	ctx context.Context, s *zdnn.Session, onTheFly, preComputed bool,
) ([][]float32, error) {
	const stacks, m, n, p = 2, 3, 4, 5
	inputData := integers[float32](stacks*m*n, 0)
	input, err := filled(ctx, s, onTheFly, inputData, zdnn.ZDNN_3DS, stacks, m, n)
	if err != nil {
		return nil, err
	}
	weights, err := weightsOf(ctx, s, stacks, n, p)
	if err != nil {
		return nil, err
	}
	biasesData := integers[float32](stacks*p, 2)
	biases, err := filled(ctx, s, preComputed, biasesData, zdnn.ZDNN_2DS, stacks, p)
	if err != nil {
		return nil, err
	}
	output, err := quantized(
		ctx, s, zdnn.QUANTIZED_DLFLOAT16, zdnn.FP32, zdnn.ZDNN_3DS, stacks, m, p,
	)
	if err != nil {
		return nil, err
	}
	_, err = zdnn.QuantizedMatmulOp(
		ctx, input, weights, biases, zdnn.MATMUL_OP_ADDITION, math.MinInt8, math.MaxInt8,
		false, false, preComputed, output,
	)
	if err != nil {
		return nil, err
	}
	outputData, err := zdnn.TransformOrigtensor(ctx, output, make([]float32, stacks*m*p))
	if err != nil {
		return nil, err
	}
	return [][]float32{outputData}, free(ctx, input, weights, biases, output)
}

// quantizedZtensor is the "Example of an application creating a quantized ztensor"; what is left of
// it is rec_scale and offset.
func quantizedZtensor(ctx context.Context, s *zdnn.Session) ([][]float32, error) {
	data := count(1 * 32 * 32 * 3)
	preTfrmdDesc, err := zdnn.InitPreTransformedDesc(zdnn.ZDNN_NHWC, zdnn.FP32, 1, 32, 32, 3)
	if err != nil {
		return nil, err
	}
	tfrmdDesc, err := zdnn.GenerateQuantizedTransformedDesc(preTfrmdDesc, zdnn.QUANTIZED_DLFLOAT16)
	if err != nil {
		return nil, err
	}
	ztensor, err := s.InitQuantizedZtensorWithMalloc(ctx, preTfrmdDesc, tfrmdDesc, 3, 2)
	if err != nil {
		return nil, err
	}
	if err := zdnn.TransformZtensor(ctx, ztensor, data); err != nil {
		return nil, err
	}
	if err := free(ctx, ztensor); err != nil {
		return nil, err
	}
	return [][]float32{{ztensor.RecScale(), ztensor.Offset()}}, nil
}
