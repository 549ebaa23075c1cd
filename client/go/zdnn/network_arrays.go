// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"

	networkv1 "nnpa.dev/nnpa/gen/nnpa/network/v1"
)

// Array is an array of a hosted network: its elements, row-major, and its sizes, outermost first.
type Array struct {
	// Data is a slice: []float32, []float64, []int8 to []int64, []uint8 to []uint64, []bool,
	// []Float16, []BFloat16, or []string for text.
	Data any
	// Shape may be left out of an input that has at most one free dim.
	Shape []int64
}

const textType = "object"

// elementTypes holds Go's type of each of a model's types, by NumPy's names.
var elementTypes = map[string]reflect.Type{
	"float32": reflect.TypeFor[float32](), "float64": reflect.TypeFor[float64](),
	"float16": reflect.TypeFor[Float16](), "bfloat16": reflect.TypeFor[BFloat16](),
	"int8": reflect.TypeFor[int8](), "int16": reflect.TypeFor[int16](),
	"int32": reflect.TypeFor[int32](), "int64": reflect.TypeFor[int64](),
	"uint8": reflect.TypeFor[uint8](), "uint16": reflect.TypeFor[uint16](),
	"uint32": reflect.TypeFor[uint32](), "uint64": reflect.TypeFor[uint64](),
	"bool": reflect.TypeFor[bool](), textType: reflect.TypeFor[string](),
}

// elementType returns Go's type of a model's type; byte if Go lacks the type.
func elementType(dtype string) reflect.Type {
	return cmp.Or(elementTypes[dtype], reflect.TypeFor[byte]())
}

// describePort returns "x float32[2 3]".
func describePort(port *networkv1.Port) string {
	return fmt.Sprintf("%s %s%v", port.Name, port.Dtype, port.Shape)
}

// encode returns an input as a message, or the error of an array that is not of its type and shape.
func encode(port *networkv1.Port, array Array) (*networkv1.NamedArray, error) {
	expected := reflect.SliceOf(elementType(port.Dtype))
	if reflect.TypeOf(array.Data) != expected {
		return nil, fmt.Errorf("input %s: got %T, expected %s (%v)", port.Name, array.Data, port.Dtype, expected)
	}
	shape, err := fitShape(port, int64(reflect.ValueOf(array.Data).Len()), array.Shape)
	if err != nil {
		return nil, err
	}
	named := &networkv1.NamedArray{Name: port.Name, Dtype: port.Dtype, Shape: shape}
	if texts, is := array.Data.([]string); is {
		for _, text := range texts { // source: NamedArray.data, the length before each text
			named.Data = binary.LittleEndian.AppendUint32(named.Data, uint32(len(text)))
			named.Data = append(named.Data, text...)
		}
		return named, nil
	}
	named.Data, err = binary.Append(nil, binary.LittleEndian, array.Data)
	return named, err
}

// fitShape returns the shape of count elements: the checked shape, or the port's shape with its free dim
// filled.
func fitShape(port *networkv1.Port, count int64, shape []int64) ([]int64, error) {
	if shape == nil {
		return inferShape(port, count)
	}
	product, fits := int64(1), len(shape) == len(port.Shape)
	for i, size := range shape {
		product *= size
		fits = fits && size >= 0 && (port.Shape[i] < 0 || port.Shape[i] == size)
	}
	if !fits {
		return nil, fmt.Errorf("input %s: got %s %v, expected %s %v",
			port.Name, port.Dtype, shape, port.Dtype, port.Shape)
	}
	if product != count {
		return nil, fmt.Errorf("input %s: %d elements do not fill shape %v", port.Name, count, shape)
	}
	return shape, nil
}

func inferShape(port *networkv1.Port, count int64) ([]int64, error) {
	free, fixed := []int{}, int64(1)
	for i, size := range port.Shape {
		if size < 0 {
			free = append(free, i)
		} else {
			fixed *= size
		}
	}
	shape := slices.Clone(port.Shape)
	switch {
	case len(free) > 1:
		return nil, fmt.Errorf("input %s: %v has %d free dims, give Shape", port.Name, shape, len(free))
	case len(free) == 1 && fixed > 0 && count%fixed == 0:
		shape[free[0]] = count / fixed
	case len(free) == 1 || count != fixed:
		return nil, fmt.Errorf("input %s: got %d elements, expected %v", port.Name, count, shape)
	}
	return shape, nil
}

// decode returns the array of a message.
func decode(named *networkv1.NamedArray) (Array, error) {
	if named.Dtype == textType {
		texts, err := splitTexts(named.Data)
		return Array{Data: texts, Shape: named.Shape}, err
	}
	element := elementType(named.Dtype)
	count := len(named.Data) / int(element.Size())
	elements := reflect.MakeSlice(reflect.SliceOf(element), count, count).Interface()
	if _, err := binary.Decode(named.Data, binary.LittleEndian, elements); err != nil {
		return Array{}, fmt.Errorf("output %s: %w", named.Name, err)
	}
	return Array{Data: elements, Shape: named.Shape}, nil
}

func splitTexts(data []byte) ([]string, error) {
	texts := []string{}
	for len(data) > 0 {
		if len(data) < 4 || len(data)-4 < int(binary.LittleEndian.Uint32(data)) {
			return nil, errors.New("an output of text ends within a text")
		}
		end := 4 + int(binary.LittleEndian.Uint32(data))
		texts, data = append(texts, string(data[4:end])), data[end:]
	}
	return texts, nil
}
