// SPDX-License-Identifier: Apache-2.0

package mli

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	mliv1 "nnpa.dev/nnpa/gen/nnpa/mli/v1"
)

// Types of elements.
const (
	FX_8  = mliv1.ElType_MLI_EL_FX_8
	FX_16 = mliv1.ElType_MLI_EL_FX_16
	SA_8  = mliv1.ElType_MLI_EL_SA_8
	SA_32 = mliv1.ElType_MLI_EL_SA_32
	FP_32 = mliv1.ElType_MLI_EL_FP_32
)

// elementSizes holds the bytes of one element.
var elementSizes = map[mliv1.ElType]int{FX_8: 1, FX_16: 2, SA_8: 1, SA_32: 4, FP_32: 4}

// SaParams are zero points and scales: value = (x - ZeroPoint) * Scale / 2^ScaleFracBits, one entry for
// the whole tensor (Dim nil), or one per slice of a dimension.
type SaParams = mliv1.SaParams

// Tensor is an mli_tensor that owns its memory; a kernel sets the fields of its outputs.
type Tensor struct {
	memory []byte // little-endian elements
	// fields is the wire's tensor, without memory.
	fields *mliv1.Tensor
}

// Fx returns a fixed-point tensor with a copy of an array, value = x / 2^fracBits, whose sizes are
// shape, outermost first; without any it has one dim. MLI_EL_FX_8 of int8, MLI_EL_FX_16 of int16.
func Fx[T int8 | int16](array []T, fracBits int32, shape ...uint32) (*Tensor, error) {
	kind := FX_8
	if binary.Size(T(0)) == 2 {
		kind = FX_16
	}
	fields := &mliv1.Tensor{ElType: kind, ElParams: fx(fracBits)}
	return newTensor(array, len(array), fields, shape)
}

// Sa returns a signed asymmetric tensor: MLI_EL_SA_8 of int8, MLI_EL_SA_32 of int32.
func Sa[T int8 | int32](array []T, params *SaParams, shape ...uint32) (*Tensor, error) {
	kind := SA_8
	if binary.Size(T(0)) == 4 {
		kind = SA_32
	}
	fields := &mliv1.Tensor{ElType: kind, ElParams: &mliv1.Tensor_Sa{Sa: params}}
	return newTensor(array, len(array), fields, shape)
}

// Fp returns a tensor of MLI_EL_FP_32.
func Fp(array []float32, shape ...uint32) (*Tensor, error) {
	return newTensor(array, len(array), &mliv1.Tensor{ElType: FP_32}, shape)
}

// Empty returns a fixed-point output for a kernel to fill: zeroed memory for count elements, its shape
// unset.
func Empty(count int, elType mliv1.ElType, fracBits int32) *Tensor {
	fields := &mliv1.Tensor{ElType: elType, ElParams: fx(fracBits)}
	return &Tensor{memory: make([]byte, count*elementSizes[elType]), fields: fields}
}

// EmptySa returns a signed asymmetric output.
func EmptySa(count int, elType mliv1.ElType, params *SaParams) *Tensor {
	fields := &mliv1.Tensor{ElType: elType, ElParams: &mliv1.Tensor_Sa{Sa: params}}
	return &Tensor{memory: make([]byte, count*elementSizes[elType]), fields: fields}
}

// EmptyFp returns an output of MLI_EL_FP_32.
func EmptyFp(count int) *Tensor {
	fields := &mliv1.Tensor{ElType: FP_32}
	return &Tensor{memory: make([]byte, count*elementSizes[FP_32]), fields: fields}
}

func fx(fracBits int32) *mliv1.Tensor_Fx {
	return &mliv1.Tensor_Fx{Fx: &mliv1.FxParams{FracBits: fracBits}}
}

func newTensor(array any, count int, fields *mliv1.Tensor, shape []uint32) (*Tensor, error) {
	if len(shape) == 0 {
		shape = []uint32{uint32(count)}
	}
	if product := sizeOf(shape); product != count {
		return nil, fmt.Errorf("array: %d elements, shape %v has %d", count, shape, product)
	}
	memory, err := binary.Append(nil, binary.LittleEndian, array)
	fields.Shape = shape
	return &Tensor{memory: memory, fields: fields}, err
}

// sizeOf returns how many elements a shape has.
func sizeOf(shape []uint32) int {
	product := 1
	for _, size := range shape {
		product *= int(size)
	}
	return product
}

// room returns how many elements the memory holds, also before a kernel has filled it.
func (t *Tensor) room() int { return len(t.memory) / max(1, elementSizes[t.ElType()]) }

// Shape returns the sizes, outermost first; of an output that no kernel has filled, none.
func (t *Tensor) Shape() []uint32 { return t.fields.Shape }

// ElType returns the type of the elements.
func (t *Tensor) ElType() mliv1.ElType { return t.fields.ElType }

// FracBits returns the fractional bits of a fixed-point tensor, else 0.
func (t *Tensor) FracBits() int32 { return t.fields.GetFx().GetFracBits() }

// Sa returns zero points and scales of a signed asymmetric tensor, else nil.
func (t *Tensor) Sa() *SaParams { return t.fields.GetSa() }

// Elements returns a copy of the elements, or an error where they are of another type.
func Elements[T int8 | int16 | int32 | float32](t *Tensor) ([]T, error) {
	array := make([]T, sizeOf(t.fields.Shape))
	_, isFloat := any(array).([]float32)
	if binary.Size(T(0)) != elementSizes[t.ElType()] || isFloat != (t.ElType() == FP_32) {
		return nil, fmt.Errorf("elements: %v, not of type %T", t.ElType(), array)
	}
	_, err := binary.Decode(t.memory, binary.LittleEndian, array)
	return array, err
}

// String returns shape, type and parameters, in one line.
func (t *Tensor) String() string {
	if t == nil {
		return "mli.Tensor(nil)"
	}
	shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(t.Shape()), "[]"), " ", "x")
	if shape == "" {
		shape = "scalar"
	}
	switch t.fields.ElParams.(type) {
	case *mliv1.Tensor_Fx:
		return fmt.Sprintf("mli.Tensor(%s %v, %d frac_bits)", shape, t.ElType(), t.FracBits())
	case *mliv1.Tensor_Sa:
		return fmt.Sprintf("mli.Tensor(%s %v, asymmetric)", shape, t.ElType())
	}
	return fmt.Sprintf("mli.Tensor(%s %v)", shape, t.ElType())
}

// Quantise returns numbers as a fixed-point tensor of MLI_EL_FX_8 or MLI_EL_FX_16: the nearest
// elements, ties to even, saturated.
// Source: embARC MLI documentation, "Data Formats".
func Quantise(values []float64, elType mliv1.ElType, fracBits int32, shape ...uint32) (*Tensor, error) {
	if elType != FX_8 && elType != FX_16 {
		return nil, fmt.Errorf("elType: %v, expected MLI_EL_FX_8 or MLI_EL_FX_16", elType)
	}
	limit := math.Exp2(float64(8*elementSizes[elType] - 1))
	integers := make([]int16, len(values))
	for i, value := range values {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return nil, fmt.Errorf("values: %v, expected finite numbers", value)
		}
		element := math.RoundToEven(math.Ldexp(value, int(fracBits)))
		integers[i] = int16(min(max(element, -limit), limit-1))
	}
	if elType == FX_16 {
		return Fx(integers, fracBits, shape...)
	}
	narrow := make([]int8, len(integers))
	for i, element := range integers {
		narrow[i] = int8(element)
	}
	return Fx(narrow, fracBits, shape...)
}

// FitFx returns the most fractional bits with which no value saturates in a fixed-point type; else 0.
func FitFx(values []float64, elType mliv1.ElType) int32 {
	largest, bits := 0.0, 8*elementSizes[elType]
	for _, value := range values {
		largest = max(largest, math.Abs(value))
	}
	for fracBits := bits - 1; fracBits > 0; fracBits-- {
		if math.RoundToEven(math.Ldexp(largest, fracBits)) < math.Exp2(float64(bits-1)) {
			return int32(fracBits)
		}
	}
	return 0
}

// Dequantise returns the values that the elements of a fixed-point or FP32 tensor stand for.
func Dequantise(t *Tensor) ([]float64, error) {
	switch t.ElType() {
	case FX_8:
		return values[int8](t)
	case FX_16:
		return values[int16](t)
	case FP_32:
		return values[float32](t)
	}
	return nil, fmt.Errorf("tensor: %v, expected fixed point or FP32", t)
}

func values[T int8 | int16 | int32 | float32](t *Tensor) ([]float64, error) {
	elements, err := Elements[T](t)
	numbers := make([]float64, len(elements))
	for i, element := range elements {
		numbers[i] = math.Ldexp(float64(element), -int(t.FracBits()))
	}
	return numbers, err
}
