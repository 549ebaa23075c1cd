// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"math"

	"nnpa.dev/nnpa/zdnn"
)

// arguments has the arguments of one call, by C's names, and its results.
type arguments struct {
	fields  map[string]json.RawMessage
	named   map[uint64]*zdnn.Ztensor
	data    [][]byte
	problem error

	outputs         map[string]*zdnn.Ztensor
	value           any
	least, greatest float32
	out             []byte
}

// read decodes an argument, if present, and keeps the first problem.
func (a *arguments) read(name string, into any) bool {
	raw, present := a.fields[name]
	if present && a.problem == nil {
		a.problem = json.Unmarshal(raw, into)
	}
	return present
}

// number returns an argument that is a number or an enum, 0 when absent.
func number[N ~int32 | ~uint32](a *arguments, name string) N {
	var value N
	a.read(name, &value)
	return value
}

func numbers[N ~int32](a *arguments, name string) []N {
	var values []N
	a.read(name, &values)
	return values
}

func (a *arguments) bool(name string) bool {
	var value bool
	a.read(name, &value)
	return value
}

// float returns a number, which may be "NaN", "Infinity" or "-Infinity".
func (a *arguments) float(name string) float32 {
	var value any
	a.read(name, &value)
	switch value := value.(type) {
	case float64:
		return float32(value)
	case string:
		return map[string]float32{
			"NaN": float32(math.NaN()), "Infinity": float32(math.Inf(1)),
			"-Infinity": float32(math.Inf(-1)),
		}[value]
	}
	return 0
}

// pointer returns nil for an absent argument.
func (a *arguments) pointer(name string) *float32 {
	if _, present := a.fields[name]; !present {
		return nil
	}
	value := a.float(name)
	return &value
}

// count returns C's count, by default the number of elements.
func (a *arguments) count() int32 {
	var count int32
	if a.read("count", &count) {
		return count
	}
	return int32(len(numbers[int32](a, "function_codes")) + len(numbers[int32](a, "format_codes")))
}

// reference is how the vector names a ztensor.
type reference struct {
	ID    uint64 `json:"id"`
	NewID uint64 `json:"new_id"`
}

// ztensor returns a ztensor of the vector, nil if the vector leaves it out. The init verbs have a plain
// number.
func (a *arguments) ztensor(name string) *zdnn.Ztensor {
	var named reference
	if json.Unmarshal(a.fields[name], &named.ID) == nil {
		return a.named[named.ID]
	}
	a.read(name, &named)
	return a.named[named.ID]
}

func (a *arguments) descriptor(name string) *zdnn.TensorDesc {
	var desc descriptor
	a.read(name, &desc)
	return desc.message()
}

// array returns the user's one array.
func (a *arguments) array() []byte {
	if len(a.data) == 0 {
		return nil
	}
	return a.data[0]
}

// descriptor is a TensorDesc as vectors have it; zeros may be left out.
type descriptor struct {
	Layout zdnn.DataLayouts `json:"layout"`
	Format zdnn.DataFormats `json:"format"`
	Type   zdnn.DataTypes   `json:"type"`
	Dim4   uint32           `json:"dim4"`
	Dim3   uint32           `json:"dim3"`
	Dim2   uint32           `json:"dim2"`
	Dim1   uint32           `json:"dim1"`
}

func (d *descriptor) message() *zdnn.TensorDesc {
	return &zdnn.TensorDesc{
		Layout: &d.Layout, Format: &d.Format, Type: &d.Type,
		Dim4: d.Dim4, Dim3: d.Dim3, Dim2: d.Dim2, Dim1: d.Dim1,
	}
}

func plain(desc *zdnn.TensorDesc) *descriptor {
	return &descriptor{
		desc.GetLayout(), desc.GetFormat(), desc.GetType(),
		desc.GetDim4(), desc.GetDim3(), desc.GetDim2(), desc.GetDim1(),
	}
}
