// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"google.golang.org/protobuf/proto"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
)

// Ztensor is a remote zdnn_ztensor: the structure here, the sticks in the session. A ztensor without
// a buffer lives in the client and travels with the operations that take it. When the garbage
// collector finds it unreachable, a later call frees the tensor in the session.
type Ztensor struct {
	session *Session
	// id is the session's name for the tensor, 0 while it lives here alone.
	id uint64
	// structure is without contents; nil until a pipeline has created the tensor.
	structure    *zdnnv1.Ztensor
	missing      string
	flags        FpFlags
	quantization *quantization
	dropped      runtime.Cleanup
	tracked      bool
}

type quantization struct{ scale, offset float32 }

// Session returns the session that holds the ztensor.
func (z *Ztensor) Session() *Session { return z.session }

// Structure returns a copy of the structure as the wire has it, without contents; nil for an output
// that a pipeline has not created yet.
func (z *Ztensor) Structure() *zdnnv1.Ztensor {
	if z.structure == nil {
		return nil
	}
	return proto.Clone(z.structure).(*zdnnv1.Ztensor)
}

// PreTransformedDesc returns the user's view of the tensor.
func (z *Ztensor) PreTransformedDesc() *TensorDesc { return z.Structure().GetPreTransformedDesc() }

// TransformedDesc returns the accelerator's view of the tensor.
func (z *Ztensor) TransformedDesc() *TensorDesc { return z.Structure().GetTransformedDesc() }

// BufferSize returns the size of the sticks in bytes, 0 before they are allocated.
func (z *Ztensor) BufferSize() uint64 { return z.structure.GetBufferSize() }

// IsTransformed reports whether the sticks hold data.
func (z *Ztensor) IsTransformed() bool { return z.structure.GetIsTransformed() }

// RecScale returns the reciprocal of the quantization scale; 0 means not quantized.
func (z *Ztensor) RecScale() float32 { return z.structure.GetRecScale() }

// Offset returns the quantization offset.
func (z *Ztensor) Offset() float32 { return z.structure.GetOffset() }

// Flags returns the IEEE flags that the last transform raised, a sum of FpFlags.
func (z *Ztensor) Flags() FpFlags { return z.flags }

// String returns layout, sizes, type and state of the ztensor, in one line.
func (z *Ztensor) String() string {
	if z == nil {
		return "Ztensor(nil)"
	}
	if z.structure == nil {
		return fmt.Sprintf("Ztensor(%s)", z.missing)
	}
	pre, tfrmd := z.structure.GetPreTransformedDesc(), z.structure.GetTransformedDesc()
	text := fmt.Sprintf("Ztensor(%s as %s, %s", describe(pre), describe(tfrmd), z.state())
	if z.RecScale() != 0 {
		text += fmt.Sprintf(", rec_scale %g, offset %g", z.RecScale(), z.Offset())
	}
	return text + ")"
}

// state describes the buffer: "4096 bytes, transformed", "freed" or "no buffer".
func (z *Ztensor) state() string {
	switch {
	case z.structure.NullBuffer && z.BufferSize() > 0:
		return "freed"
	case z.structure.NullBuffer:
		return "no buffer"
	case z.IsTransformed():
		return fmt.Sprintf("%d bytes, transformed", z.BufferSize())
	default:
		return fmt.Sprintf("%d bytes, not transformed", z.BufferSize())
	}
}

// describe returns layout, sizes and type: "ZDNN_2D 2x3 FP32".
func describe(desc *TensorDesc) string {
	sizes := []uint32{desc.GetDim4(), desc.GetDim3(), desc.GetDim2(), desc.GetDim1()}
	if rank := rankOf(desc.GetLayout()); rank > 0 {
		sizes = sizes[4-rank:]
	}
	text := strings.ReplaceAll(strings.Trim(fmt.Sprint(sizes), "[]"), " ", "x")
	return fmt.Sprintf("%v %s %v", desc.GetLayout(), text, desc.GetType())
}

// ref returns the reference by which an operation names this ztensor.
func (z *Ztensor) ref() (*zdnnv1.TensorRef, error) {
	if z.id != 0 {
		return refByID(z.id), nil
	}
	if z.structure == nil {
		return nil, fmt.Errorf("does not exist, %s", z.missing)
	}
	return &zdnnv1.TensorRef{Tensor: &zdnnv1.TensorRef_InlineZtensor{InlineZtensor: z.structure}}, nil
}

func refByID(id uint64) *zdnnv1.TensorRef {
	return &zdnnv1.TensorRef{Tensor: &zdnnv1.TensorRef_Id{Id: id}}
}

// update replaces the structure; the user's own descriptor stays as it is.
func (z *Ztensor) update(structure *zdnnv1.Ztensor) {
	fresh := proto.Clone(structure).(*zdnnv1.Ztensor)
	fresh.Contents = nil
	if z.structure != nil {
		fresh.PreTransformedDesc = z.structure.PreTransformedDesc
	}
	z.structure = fresh
}

// invalidate records that the session does not hold this ztensor, and why.
func (z *Ztensor) invalidate(reason string) {
	z.id = 0
	if z.structure == nil {
		z.missing = reason
	}
}

// InitZtensor returns a ztensor without a buffer: zdnn_init_ztensor.
func (s *Session) InitZtensor(preTfrmdDesc, tfrmdDesc *TensorDesc) *Ztensor {
	return &Ztensor{session: s, structure: &zdnnv1.Ztensor{
		PreTransformedDesc: proto.Clone(preTfrmdDesc).(*TensorDesc),
		TransformedDesc:    proto.Clone(tfrmdDesc).(*TensorDesc),
		BufferSize:         proto.Uint64(0),
		NullBuffer:         true,
	}}
}

// InitQuantizedZtensor returns a quantized ztensor without a buffer, which keeps the reciprocal of
// the scale, 0 for 0: zdnn_init_quantized_ztensor.
func (s *Session) InitQuantizedZtensor(
	preTfrmdDesc, tfrmdDesc *TensorDesc, scale, offset float32,
) *Ztensor {
	z := s.InitZtensor(preTfrmdDesc, tfrmdDesc)
	z.structure.RecScale, z.structure.Offset = scale, offset
	if scale != 0 {
		z.structure.RecScale = 1 / scale
	}
	z.quantization = &quantization{scale, offset}
	return z
}

// InitZtensorWithMalloc returns a ztensor with zero-filled sticks: zdnn_init_ztensor_with_malloc.
func (s *Session) InitZtensorWithMalloc(
	ctx context.Context, preTfrmdDesc, tfrmdDesc *TensorDesc,
) (*Ztensor, error) {
	z := s.InitZtensor(preTfrmdDesc, tfrmdDesc)
	return z, AllochelperZtensor(ctx, z)
}

// InitQuantizedZtensorWithMalloc returns a quantized ztensor with zero-filled sticks:
// zdnn_init_quantized_ztensor_with_malloc.
func (s *Session) InitQuantizedZtensorWithMalloc(
	ctx context.Context, preTfrmdDesc, tfrmdDesc *TensorDesc, scale, offset float32,
) (*Ztensor, error) {
	z := s.InitQuantizedZtensor(preTfrmdDesc, tfrmdDesc, scale, offset)
	return z, AllochelperZtensor(ctx, z)
}

// AllochelperZtensor allocates zero-filled sticks. The error may be a ZdnnError: ZDNN_INVALID_FORMAT,
// ZDNN_INVALID_LAYOUT, ZDNN_INVALID_TYPE, ZDNN_INVALID_SHAPE, ZDNN_ALLOCATION_FAILURE.
// Source: zDNN API Reference 1.2.0, zdnn_allochelper_ztensor.
func AllochelperZtensor(ctx context.Context, ztensor *Ztensor) error {
	v := &verb{name: "allochelper_ztensor"}
	if v.input("ztensor", ztensor); v.err != nil {
		return v.err
	}
	var calls []*call
	if ztensor.id == 0 {
		calls = append(calls, &call{name: "init_ztensor", operation: ztensor.creation()})
		v.creates = []*Ztensor{ztensor}
	}
	m := &zdnnv1.AllochelperZtensor{Ztensor: v.input("ztensor", ztensor)}
	operation := &zdnnv1.Operation{Operation: &zdnnv1.Operation_AllochelperZtensor{AllochelperZtensor: m}}
	return ztensor.session.submit(ctx, append(calls, v.call(operation))...)
}

// creation gives the ztensor an id, and returns the operation that creates it in the session.
func (z *Ztensor) creation() *zdnnv1.Operation {
	z.id = z.session.NewID()
	pre, tfrmd := z.structure.PreTransformedDesc, z.structure.TransformedDesc
	if z.quantization == nil {
		m := &zdnnv1.InitZtensor{Ztensor: z.id, PreTransformedDesc: pre, TransformedDesc: tfrmd}
		return &zdnnv1.Operation{Operation: &zdnnv1.Operation_InitZtensor{InitZtensor: m}}
	}
	m := &zdnnv1.InitQuantizedZtensor{
		Ztensor: z.id, PreTransformedDesc: pre, TransformedDesc: tfrmd,
		Scale: &z.quantization.scale, Offset: &z.quantization.offset,
	}
	return &zdnnv1.Operation{
		Operation: &zdnnv1.Operation_InitQuantizedZtensor{InitQuantizedZtensor: m},
	}
}

// FreeZtensorBuffer frees the sticks; the structure stays as it is. The error may be the ZdnnError
// ZDNN_INVALID_BUFFER, when there are none.
// Source: zDNN API Reference 1.2.0, zdnn_free_ztensor_buffer.
func FreeZtensorBuffer(ctx context.Context, ztensor *Ztensor) error {
	v := &verb{name: "free_ztensor_buffer", read: func(result *zdnnv1.OperationResult) error {
		if ZdnnStatus(result.ZdnnStatus) == ZDNN_OK && ztensor.id != 0 {
			ztensor.session.untrack(ztensor)
		}
		return nil
	}}
	return v.run(ctx, free(v.input("ztensor", ztensor)))
}

// free returns the operation that frees the sticks of a tensor.
func free(ref *zdnnv1.TensorRef) *zdnnv1.Operation {
	m := &zdnnv1.FreeZtensorBuffer{Ztensor: ref}
	return &zdnnv1.Operation{Operation: &zdnnv1.Operation_FreeZtensorBuffer{FreeZtensorBuffer: m}}
}

// NewZtensor returns a transformed ztensor with the data of an array of float32, Float16, BFloat16 or
// int32. The product of dims, outermost first, must be the length of the array.
func NewZtensor[T Element](
	ctx context.Context, s *Session, layout DataLayouts, data []T, dims ...uint32,
) (*Ztensor, error) {
	kind, typed := typeOf[T]()
	if !typed {
		return nil, errors.New("data: bytes, expected elements of a type")
	}
	pre, err := InitPreTransformedDesc(layout, kind, dims...)
	if err != nil {
		return nil, err
	}
	size := 1.0 // dims may have a product that no integer holds
	for _, dim := range dims {
		size *= float64(dim)
	}
	if float64(len(data)) != size {
		return nil, fmt.Errorf("data: %d elements, dims %v have %.0f", len(data), dims, size)
	}
	tfrmd, err := GenerateTransformedDesc(pre)
	if err != nil {
		return nil, err
	}
	z, err := s.InitZtensorWithMalloc(ctx, pre, tfrmd)
	if err != nil {
		return nil, err
	}
	return z, TransformZtensor(ctx, z, data)
}
