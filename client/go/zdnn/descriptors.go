// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"fmt"
	"math"
	"slices"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
)

// TensorDesc is zdnn_tensor_desc: fields Layout, Format, Type, Dim4 to Dim1, as the wire has them.
type TensorDesc = zdnnv1.TensorDesc

// axes holds the layouts that a user array can have: for each dim of the transformed form, outermost
// first, the number of the user's dim that it is, 0 for a size of 1.
var axes = map[DataLayouts][4]int{
	ZDNN_1D: {0, 0, 0, 1}, ZDNN_2D: {0, 0, 2, 1}, ZDNN_2DS: {2, 0, 0, 1},
	ZDNN_3D: {0, 3, 2, 1}, ZDNN_3DS: {3, 0, 2, 1},
	ZDNN_4D: {4, 3, 2, 1}, ZDNN_4DS: {4, 0, 2, 1}, // 4DS: its directions are side by side in dim 1
	ZDNN_NHWC: {4, 3, 2, 1}, ZDNN_NCHW: {4, 2, 1, 3}, ZDNN_HWCK: {4, 3, 2, 1},
}

// rankOf returns the number of dims of a layout, its highest axis; 0 for a concatenated or unknown one.
func rankOf(layout DataLayouts) int {
	ofLayout := axes[layout]
	return slices.Max(ofLayout[:])
}

// InitPreTransformedDesc describes the user's tensor: sizes in elements, outermost first, one for each
// dim of the layout. Neither layout nor type is checked here, as in C; a concatenated or unknown layout
// takes no sizes.
// Source: zDNN API Reference 1.2.0, zdnn_init_pre_transformed_desc.
func InitPreTransformedDesc(layout DataLayouts, kind DataTypes, sizes ...uint32) (*TensorDesc, error) {
	rank := rankOf(layout)
	if rank > 0 && len(sizes) != rank {
		return nil, fmt.Errorf("sizes: %v, layout %v has %d, not %d", sizes, layout, rank, len(sizes))
	}
	desc := &TensorDesc{Layout: &layout, Type: &kind}
	fields := [4]*uint32{&desc.Dim4, &desc.Dim3, &desc.Dim2, &desc.Dim1}
	for i, field := range fields[4-rank:] {
		*field = sizes[i]
	}
	return desc, nil
}

// padded returns a size rounded up to whole sticks of 64 cells, as a uint32_t.
func padded(size uint32) uint32 {
	return (size + 63) / 64 * 64
}

type dims [4]uint32

// place returns the transformed dims of a layout, and whether it has a transformed form.
func place(pre *TensorDesc) (placed dims, ok bool) {
	sizes := [5]uint32{1, pre.GetDim1(), pre.GetDim2(), pre.GetDim3(), pre.GetDim4()}
	if pre.GetLayout() == ZDNN_4DS && pre.GetDim3() != 1 {
		sizes[1] = pre.GetDim3() * padded(pre.GetDim1())
	}
	ofLayout, ok := axes[pre.GetLayout()]
	for i, axis := range ofLayout {
		placed[i] = sizes[axis]
	}
	return placed, ok
}

func transformed(layout DataLayouts, format DataFormats, kind DataTypes, d dims) *TensorDesc {
	return &TensorDesc{
		Layout: &layout, Format: &format, Type: &kind, Dim4: d[0], Dim3: d[1], Dim2: d[2], Dim1: d[3],
	}
}

// refuse returns the error of a local function, explained as the server explains its own.
func refuse(status ZdnnStatus, op, field string, value any, limit string, number int) error {
	return newZdnnError(op, -1, &zdnnv1.OperationResult{
		ZdnnStatus:    uint32(status),
		StatusMessage: GetStatusMessage(status),
		Refusal: &zdnnv1.Refusal{
			Field: field, Value: fmt.Sprint(value), Limit: limit,
			Constraint: fmt.Sprintf("%s_c%d", op, number),
		},
	})
}

func isFloat(kind DataTypes) bool {
	return kind == FP32 || kind == FP16 || kind == BFLOAT
}

// GenerateTransformedDesc describes the sticks of a tensor. The error is a ZdnnError:
// ZDNN_INVALID_LAYOUT for a layout that has no transformed form, ZDNN_INVALID_TYPE for a type other
// than FP32, FP16, BFLOAT, INT32.
// Source: zDNN API Reference 1.2.0, zdnn_generate_transformed_desc.
func GenerateTransformedDesc(preTfrmdDesc *TensorDesc) (*TensorDesc, error) {
	const op = "generate_transformed_desc"
	layout, kind := preTfrmdDesc.GetLayout(), preTfrmdDesc.GetType()
	placed, ok := place(preTfrmdDesc)
	if !ok {
		return nil, refuse(ZDNN_INVALID_LAYOUT, op, "pre_tfrmd_desc.layout", layout, "a plain one", 1)
	}
	target := ZDNN_DLFLOAT16
	if kind == INT32 {
		target = ZDNN_BINARY_INT32
	} else if !isFloat(kind) {
		const limit = "FP32, FP16, BFLOAT or INT32"
		return nil, refuse(ZDNN_INVALID_TYPE, op, "pre_tfrmd_desc.type", kind, limit, 2)
	}
	if layout == ZDNN_HWCK {
		return transformed(ZDNN_HWCK, ZDNN_FORMAT_4DKERNEL, target, placed), nil
	}
	return transformed(ZDNN_NHWC, ZDNN_FORMAT_4DFEATURE, target, placed), nil
}

// GenerateQuantizedTransformedDesc describes the sticks of a quantized tensor. The error is a
// ZdnnError, in this order: ZDNN_INVALID_LAYOUT (4DS, NCHW, HWCK and concatenated ones),
// ZDNN_INVALID_TYPE, ZDNN_INVALID_TRANSFORM_TYPE.
// Source: zDNN API Reference 1.2.0, zdnn_generate_quantized_transformed_desc.
func GenerateQuantizedTransformedDesc(
	preTfrmdDesc *TensorDesc, transformType QuantizedTransformTypes,
) (*TensorDesc, error) {
	const op = "generate_quantized_transformed_desc"
	layout, kind := preTfrmdDesc.GetLayout(), preTfrmdDesc.GetType()
	placed, ok := place(preTfrmdDesc)
	if !ok || layout == ZDNN_4DS || layout == ZDNN_NCHW || layout == ZDNN_HWCK {
		const limit = "1D, 2D, 2DS, 3D, 3DS, 4D or NHWC"
		return nil, refuse(ZDNN_INVALID_LAYOUT, op, "pre_tfrmd_desc.layout", layout, limit, 1)
	}
	if !isFloat(kind) && kind != INT8 {
		const limit = "FP32, FP16, BFLOAT or INT8"
		return nil, refuse(ZDNN_INVALID_TYPE, op, "pre_tfrmd_desc.type", kind, limit, 2)
	}
	switch transformType {
	case QUANTIZED_DLFLOAT16:
		return transformed(ZDNN_NHWC, ZDNN_FORMAT_4DFEATURE, ZDNN_DLFLOAT16, placed), nil
	case QUANTIZED_INT8:
		return transformed(ZDNN_NHWC, ZDNN_FORMAT_4DFEATURE, ZDNN_BINARY_INT8, placed), nil
	case QUANTIZED_WEIGHTS_INT8:
		return transformed(ZDNN_NHWC, ZDNN_FORMAT_4DWEIGHTS, ZDNN_BINARY_INT8, placed), nil
	}
	number := int32(transformType)
	return nil, refuse(ZDNN_INVALID_TRANSFORM_TYPE, op, "transform_type", number, "0, 1 or 2", 3)
}

// GenerateTransformedDescConcatenated describes the sticks of weights or biases of a recurrent
// layer, gates side by side in dim1. The error is a ZdnnError, in this order: ZDNN_INVALID_TYPE;
// ZDNN_INVALID_SHAPE (odd dim2 of weights behind a bidirectional layer); ZDNN_INVALID_LAYOUT
// (weights are 3DS, biases 2DS) or ZDNN_INVALID_CONCAT_INFO (usage); ZDNN_INVALID_CONCAT_INFO (RNN
// type).
// Source: zDNN API Reference 1.2.0, zdnn_generate_transformed_desc_concatenated.
func GenerateTransformedDescConcatenated(
	preTfrmdDesc *TensorDesc, info ConcatInfo,
) (*TensorDesc, error) {
	const op = "generate_transformed_desc_concatenated"
	pre := preTfrmdDesc
	halves := CONCAT_USAGE(info) == USAGE_WEIGHTS && CONCAT_PREV_LAYER(info) == PREV_LAYER_BIDIR
	if kind := pre.GetType(); !isFloat(kind) {
		const limit = "FP32, FP16 or BFLOAT"
		return nil, refuse(ZDNN_INVALID_TYPE, op, "pre_tfrmd_desc.type", kind, limit, 1)
	}
	if halves && pre.GetDim2()%2 != 0 {
		const limit = "even behind a bidirectional layer"
		return nil, refuse(ZDNN_INVALID_SHAPE, op, "pre_tfrmd_desc.dim2", pre.GetDim2(), limit, 2)
	}
	stack, rows, err := concatenatedRows(op, pre, info)
	if err != nil {
		return nil, err
	}
	gates, ok := gatesByType[CONCAT_RNN_TYPE(info)]
	if !ok {
		const limit = "RNN_TYPE_LSTM or RNN_TYPE_GRU"
		value := fmt.Sprintf("0x%08X", uint32(info))
		return nil, refuse(ZDNN_INVALID_CONCAT_INFO, op, "info", value, limit, 4)
	}
	layout := gates.layout
	if halves {
		rows, layout = 2*padded(rows/2), gates.bidirectional
	}
	placed := dims{stack, 1, rows, gates.count * padded(pre.GetDim1())}
	return transformed(layout, ZDNN_FORMAT_4DFEATURE, ZDNN_DLFLOAT16, placed), nil
}

// gatesByType holds the number of gates, and the layouts of concatenated tensors.
var gatesByType = map[ConcatInfo]struct {
	count                 uint32
	layout, bidirectional DataLayouts
}{
	RNN_TYPE_LSTM: {4, ZDNN_FICO, ZDNN_BIDIR_FICO},
	RNN_TYPE_GRU:  {3, ZDNN_ZRH, ZDNN_BIDIR_ZRH},
}

// concatenatedRows returns dim4 and dim2 of a concatenated tensor, after the checks of usage and
// layout.
func concatenatedRows(op string, pre *TensorDesc, info ConcatInfo) (uint32, uint32, error) {
	expected, stack, rows := ZDNN_3DS, pre.GetDim3(), pre.GetDim2()
	switch usage := CONCAT_USAGE(info); usage {
	case USAGE_BIASES, USAGE_HIDDEN_BIASES:
		expected, stack, rows = ZDNN_2DS, pre.GetDim2(), 1
	case USAGE_WEIGHTS, USAGE_HIDDEN_WEIGHTS:
	default:
		value := fmt.Sprintf("usage 0x%X", uint32(usage))
		return 0, 0, refuse(ZDNN_INVALID_CONCAT_INFO, op, "info", value, "a USAGE_ number", 3)
	}
	if layout := pre.GetLayout(); layout != expected {
		limit := expected.String()
		return 0, 0, refuse(ZDNN_INVALID_LAYOUT, op, "pre_tfrmd_desc.layout", layout, limit, 3)
	}
	return stack, rows, nil
}

// GetsizeZtensor returns the bytes of the sticks that a transformed descriptor calls for, modulo
// 2^64.
// Source: zDNN API Reference 1.2.0, zdnn_getsize_ztensor.
func GetsizeZtensor(tfrmdDesc *TensorDesc) uint64 {
	rows, cells := uint64(tfrmdDesc.GetDim2()), uint64(64)
	switch {
	case tfrmdDesc.GetType() == ZDNN_BINARY_INT32:
		cells = 32
	case tfrmdDesc.GetType() != ZDNN_BINARY_INT8:
	case tfrmdDesc.GetFormat() == ZDNN_FORMAT_4DWEIGHTS:
		rows = (rows + 1) / 2
	default:
		cells = 128
	}
	pages := (rows + 31) / 32 * ((uint64(tfrmdDesc.GetDim1()) + cells - 1) / cells)
	return uint64(tfrmdDesc.GetDim4()) * uint64(tfrmdDesc.GetDim3()) * pages * 4096
}

// IsQuantizedZtensor reports whether a ztensor carries a scale: its rec_scale is not 0.
// Source: zDNN API Reference 1.2.0, zdnn_is_quantized_ztensor.
func IsQuantizedZtensor(ztensor *Ztensor) bool {
	return ztensor.RecScale() != 0
}

// GetMaxLimit returns the largest value of a pre-transformed type that a transformed type can hold,
// as float32, Float16, BFloat16, int8 or int32. The error is the ZdnnError ZDNN_INVALID_TYPE.
// Source: zDNN API Reference 1.2.0, zdnn_get_max_limit.
func GetMaxLimit(transformedType, preTransformedType DataTypes) (any, error) {
	pair, err := limitsOf("get_max_limit", transformedType, preTransformedType)
	return pair.largest, err
}

// GetMinLimit returns the smallest value; otherwise as GetMaxLimit.
// Source: zDNN API Reference 1.2.0, zdnn_get_min_limit.
func GetMinLimit(transformedType, preTransformedType DataTypes) (any, error) {
	pair, err := limitsOf("get_min_limit", transformedType, preTransformedType)
	return pair.smallest, err
}

type limits struct{ smallest, largest any }

// limitsByType are the limits by transformed and pre-transformed type.
var limitsByType = map[DataTypes]map[DataTypes]limits{
	ZDNN_DLFLOAT16: {
		FP32:   {float32(-8573157376), float32(8573157376)}, // 0x1.FF8p32, the largest DLFLOAT16
		FP16:   {Float16(0xFBFF), Float16(0x7BFF)},          // 65504, the largest FP16
		BFLOAT: {BFloat16(0xCFFF), BFloat16(0x4FFF)},        // 8556380160, DLFLOAT16's largest truncated
	},
	ZDNN_BINARY_INT8: {
		FP32: {float32(-128), float32(127)}, FP16: {Float16(0xD800), Float16(0x57F0)},
		BFLOAT: {BFloat16(0xC300), BFloat16(0x42FE)}, INT8: {int8(math.MinInt8), int8(math.MaxInt8)},
	},
	ZDNN_BINARY_INT32: {INT32: {int32(math.MinInt32), int32(math.MaxInt32)}},
}

func limitsOf(op string, transformedType, preTransformedType DataTypes) (limits, error) {
	byType, ok := limitsByType[transformedType]
	if !ok {
		const allowed = "ZDNN_DLFLOAT16, ZDNN_BINARY_INT8 or ZDNN_BINARY_INT32"
		return limits{}, refuse(ZDNN_INVALID_TYPE, op, "transformed_type", transformedType, allowed, 1)
	}
	pair, ok := byType[preTransformedType]
	if !ok {
		const field, allowed = "pre_transformed_type", "a type that becomes transformed_type"
		return pair, refuse(ZDNN_INVALID_TYPE, op, field, preTransformedType, allowed, 2)
	}
	return pair, nil
}
