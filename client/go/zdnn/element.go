// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"
)

// Float16 holds the bits of an IEEE 16-bit number, zDNN's FP16.
type Float16 uint16

// BFloat16 holds the bits of a bfloat16 number, zDNN's BFLOAT.
type BFloat16 uint16

// Element is an element of user arrays: zDNN's pre-transformed types FP32, FP16, BFLOAT, INT8
// and INT32, and byte for an array of any type as its little-endian bytes.
type Element interface {
	float32 | Float16 | BFloat16 | int8 | int32 | byte
}

var hostIsLittleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// sizeOf returns the bytes of one element.
func sizeOf[T Element]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}

// typeOf returns the pre-transformed type of an element; false for byte, which stands for any.
func typeOf[T Element]() (DataTypes, bool) {
	var zero T
	switch any(zero).(type) {
	case float32:
		return FP32, true
	case Float16:
		return FP16, true
	case BFloat16:
		return BFLOAT, true
	case int8:
		return INT8, true
	case int32:
		return INT32, true
	}
	return 0, false
}

// checkType refuses an array whose elements have another type than the user's descriptor.
func checkType[T Element](field string, desc *TensorDesc) error {
	if kind, typed := typeOf[T](); typed && desc != nil && kind != desc.GetType() {
		return fmt.Errorf("%s: elements of type %v, the descriptor says %v", field, kind, desc.GetType())
	}
	return nil
}

// memory returns the bytes of an array in the order of the host.
func memory[T Element](array []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(array))), len(array)*sizeOf[T]())
}

// bytesOf returns an array as little-endian bytes, in place where the host has that order.
func bytesOf[T Element](array []T) []byte {
	raw := memory(array)
	if hostIsLittleEndian || sizeOf[T]() == 1 {
		return raw
	}
	raw = bytes.Clone(raw)
	turn(raw, sizeOf[T]())
	return raw
}

// turn reverses the bytes of each word of a size.
func turn(raw []byte, size int) {
	for word := range slices.Chunk(raw, size) {
		slices.Reverse(word)
	}
}

// numbers returns the values of an enum as plain numbers.
func numbers[E ~int32](values []E) []int32 {
	plain := make([]int32, len(values))
	for i, value := range values {
		plain[i] = int32(value)
	}
	return plain
}
