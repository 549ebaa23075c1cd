// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
	"nnpa.dev/nnpa/zdnn"
)

// locals are the functions that need no server, by C's names.
var locals = map[string]func(*arguments) (any, error){
	"init_pre_transformed_desc": func(a *arguments) (any, error) {
		var sizes []uint32
		a.read("dims", &sizes)
		layout, kind := number[zdnn.DataLayouts](a, "layout"), number[zdnn.DataTypes](a, "type")
		return fields(zdnn.InitPreTransformedDesc(layout, kind, sizes...))
	},
	"generate_transformed_desc": func(a *arguments) (any, error) {
		return fields(zdnn.GenerateTransformedDesc(a.descriptor("pre_transformed_desc")))
	},
	"generate_quantized_transformed_desc": func(a *arguments) (any, error) {
		pre := a.descriptor("pre_transformed_desc")
		kind := number[zdnn.QuantizedTransformTypes](a, "transform_type")
		return fields(zdnn.GenerateQuantizedTransformedDesc(pre, kind))
	},
	"generate_transformed_desc_concatenated": func(a *arguments) (any, error) {
		pre, info := a.descriptor("pre_transformed_desc"), number[zdnn.ConcatInfo](a, "info")
		return fields(zdnn.GenerateTransformedDescConcatenated(pre, info))
	},
	"getsize_ztensor": func(a *arguments) (any, error) {
		return zdnn.GetsizeZtensor(a.descriptor("transformed_desc")), nil
	},
	"get_max_limit": func(a *arguments) (any, error) {
		return bits(zdnn.GetMaxLimit(types(a)))
	},
	"get_min_limit": func(a *arguments) (any, error) {
		return bits(zdnn.GetMinLimit(types(a)))
	},
	"get_status_message": func(a *arguments) (any, error) {
		return zdnn.GetStatusMessage(zdnn.ZdnnStatus(number[uint32](a, "status"))), nil
	},
}

func types(a *arguments) (zdnn.DataTypes, zdnn.DataTypes) {
	return number[zdnn.DataTypes](a, "transformed_type"), number[zdnn.DataTypes](a, "pre_transformed_type")
}

func fields(desc *zdnn.TensorDesc, err error) (any, error) {
	return plain(desc), err
}

// bits returns a limit as a word.
func bits(limit any, err error) (any, error) {
	switch limit := limit.(type) {
	case float32:
		return fmt.Sprintf("%08X", math.Float32bits(limit)), err
	case zdnn.Float16:
		return fmt.Sprintf("%04X", uint16(limit)), err
	case zdnn.BFloat16:
		return fmt.Sprintf("%04X", uint16(limit)), err
	case int8:
		return fmt.Sprintf("%02X", uint8(limit)), err
	case int32:
		return fmt.Sprintf("%08X", uint32(limit)), err
	}
	return nil, err
}

// callLocal calls a local function by its C name without prefix.
func callLocal(
	ctx context.Context, target, name string, fields map[string]json.RawMessage,
) (answer, error) {
	a := &arguments{fields: fields}
	call, asksNobody := locals[name]
	if !asksNobody {
		call = func(a *arguments) (any, error) { return inSession(ctx, target, name, a) }
	}
	result, err := call(a)
	var refused *zdnn.ZdnnError
	if errors.As(err, &refused) {
		return answer{"status": uint32(refused.Status)}, nil
	}
	return answer{"result": result}, errors.Join(err, a.problem)
}

// inSession calls the functions that tell something of a session or a ztensor.
func inSession(ctx context.Context, target, name string, a *arguments) (result any, err error) {
	var library string
	a.read("library", &library)
	s, err := zdnn.Connect(ctx, target, zdnn.Options{Library: library})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	switch name {
	case "get_library_version":
		return s.GetLibraryVersion(), nil
	case "get_library_version_str":
		return s.GetLibraryVersionStr(), nil
	case "is_quantized_ztensor":
		desc := (&descriptor{Type: zdnn.ZDNN_DLFLOAT16, Dim4: 1, Dim3: 1, Dim2: 1, Dim1: 1}).message()
		z, err := s.PutZtensor(ctx, &zdnnv1.Ztensor{
			PreTransformedDesc: desc, TransformedDesc: desc, RecScale: a.float("rec_scale"),
		}, nil)
		if err != nil {
			return nil, err
		}
		return zdnn.IsQuantizedZtensor(z), nil
	}
	return nil, fmt.Errorf("%s: no local function", name)
}
