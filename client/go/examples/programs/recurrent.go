// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"nnpa.dev/nnpa/zdnn"
)

const (
	timesteps = 5
	batches   = 3
	features  = 32
)

// fractions returns count numbers: element i is ((i + start) * 7 modulo 23, less 11) / 32.
func fractions(count uint32, start int) []float32 {
	data := make([]float32, count)
	for i := range data {
		data[i] = float32((i+start)*7%23-11) / 32
	}
	return data
}

// layer is one recurrent layer: its inputs and its options.
type layer struct {
	kind      zdnn.ConcatInfo // RNN_TYPE_LSTM or RNN_TYPE_GRU
	previous  zdnn.ConcatInfo // PREV_LAYER_UNI or PREV_LAYER_BIDIR
	direction zdnn.LstmGruDirection
	ways      uint32
	features  uint32
	hidden    uint32
}

// plain returns a ztensor without data.
func plain(
	ctx context.Context, s *zdnn.Session, layout zdnn.DataLayouts, sizes ...uint32,
) (*zdnn.Ztensor, error) {
	preTfrmdDesc, err := zdnn.InitPreTransformedDesc(layout, zdnn.FP32, sizes...)
	if err != nil {
		return nil, err
	}
	tfrmdDesc, err := zdnn.GenerateTransformedDesc(preTfrmdDesc)
	if err != nil {
		return nil, err
	}
	return s.InitZtensorWithMalloc(ctx, preTfrmdDesc, tfrmdDesc)
}

// sequence returns the input of a first layer.
func sequence(ctx context.Context, s *zdnn.Session) (*zdnn.Ztensor, error) {
	input, err := plain(ctx, s, zdnn.ZDNN_3DS, timesteps, batches, features)
	if err != nil {
		return nil, err
	}
	return input, zdnn.TransformZtensor(ctx, input, fractions(timesteps*batches*features, 0))
}

// gates returns weights or biases, the gates concatenated, whose data begin at start.
func (l *layer) gates(
	ctx context.Context, s *zdnn.Session, usage zdnn.ConcatInfo, start int,
) (*zdnn.Ztensor, error) {
	layout, sizes := zdnn.ZDNN_2DS, []uint32{l.ways, l.hidden}
	switch usage {
	case zdnn.USAGE_WEIGHTS:
		layout, sizes = zdnn.ZDNN_3DS, []uint32{l.ways, l.features, l.hidden}
	case zdnn.USAGE_HIDDEN_WEIGHTS:
		layout, sizes = zdnn.ZDNN_3DS, []uint32{l.ways, l.hidden, l.hidden}
	}
	preTfrmdDesc, err := zdnn.InitPreTransformedDesc(layout, zdnn.FP32, sizes...)
	if err != nil {
		return nil, err
	}
	info := l.kind | usage | l.previous
	tfrmdDesc, err := zdnn.GenerateTransformedDescConcatenated(preTfrmdDesc, info)
	if err != nil {
		return nil, err
	}
	ztensor, err := s.InitZtensorWithMalloc(ctx, preTfrmdDesc, tfrmdDesc)
	if err != nil {
		return nil, err
	}
	elements := uint32(1)
	for _, size := range sizes {
		elements *= size
	}
	data := [][]float32{}
	for gate := range map[zdnn.ConcatInfo]int{zdnn.RNN_TYPE_LSTM: 4, zdnn.RNN_TYPE_GRU: 3}[l.kind] {
		data = append(data, fractions(elements, start+gate))
	}
	return ztensor, zdnn.TransformZtensor(ctx, ztensor, data...)
}

// operands returns initial states, weights, biases, hidden weights and hidden biases.
func (l *layer) operands(ctx context.Context, s *zdnn.Session) ([]*zdnn.Ztensor, error) {
	states := 1
	if l.kind == zdnn.RNN_TYPE_LSTM {
		states = 2
	}
	var created []*zdnn.Ztensor
	for range states {
		state, err := plain(ctx, s, zdnn.ZDNN_3DS, l.ways, batches, l.hidden)
		if err != nil {
			return nil, err
		}
		created = append(created, state)
	}
	for i, state := range created {
		err := zdnn.TransformZtensor(ctx, state, fractions(l.ways*batches*l.hidden, 1+i))
		if err != nil {
			return nil, err
		}
	}
	usages := []zdnn.ConcatInfo{
		zdnn.USAGE_WEIGHTS, zdnn.USAGE_BIASES, zdnn.USAGE_HIDDEN_WEIGHTS, zdnn.USAGE_HIDDEN_BIASES,
	}
	for i, usage := range usages {
		gates, err := l.gates(ctx, s, usage, 3+4*i)
		if err != nil {
			return nil, err
		}
		created = append(created, gates)
	}
	return created, nil
}

// lstm runs a layer from input to hn and cf, and frees its own operands.
func (l *layer) lstm(ctx context.Context, s *zdnn.Session, input, hn, cf *zdnn.Ztensor) error {
	o, err := l.operands(ctx, s)
	if err != nil {
		return err
	}
	if cf == nil { // the cell states are of no use to the caller
		if cf, err = plain(ctx, s, zdnn.ZDNN_4DS, 1, l.ways, batches, l.hidden); err != nil {
			return err
		}
		o = append(o, cf)
	}
	_, _, err = zdnn.Lstm(ctx, input, o[0], o[1], o[2], o[3], o[4], o[5], l.direction, hn, cf, false)
	if err != nil {
		return err
	}
	return free(ctx, o...)
}

// lstmForward is the "Example of an application calling the zdnn_lstm API (forward)".
func lstmForward(ctx context.Context, s *zdnn.Session) ([][]float32, error) {
	l := &layer{kind: zdnn.RNN_TYPE_LSTM, direction: zdnn.FWD, ways: 1, features: features, hidden: 5}
	return l.whole(ctx, s, 1)
}

// lstmBidirectional is the "Example of an application calling the zdnn_lstm API (bi-directional)".
func lstmBidirectional(ctx context.Context, s *zdnn.Session) ([][]float32, error) {
	l := &layer{kind: zdnn.RNN_TYPE_LSTM, direction: zdnn.BIDIR, ways: 2, features: features, hidden: 5}
	return l.whole(ctx, s, timesteps)
}

// whole runs one LSTM layer, and returns its hidden states and its cell states.
func (l *layer) whole(ctx context.Context, s *zdnn.Session, states uint32) ([][]float32, error) {
	input, err := sequence(ctx, s)
	if err != nil {
		return nil, err
	}
	hn, err := plain(ctx, s, zdnn.ZDNN_4DS, states, l.ways, batches, l.hidden)
	if err != nil {
		return nil, err
	}
	cf, err := plain(ctx, s, zdnn.ZDNN_4DS, 1, l.ways, batches, l.hidden)
	if err != nil {
		return nil, err
	}
	if err := l.lstm(ctx, s, input, hn, cf); err != nil {
		return nil, err
	}
	hnData, err := zdnn.TransformOrigtensor[float32](ctx, hn, nil)
	if err != nil {
		return nil, err
	}
	cfData, err := zdnn.TransformOrigtensor[float32](ctx, cf, nil)
	if err != nil {
		return nil, err
	}
	return [][]float32{hnData, cfData}, free(ctx, input, hn, cf)
}

// lstmMultiLayerBidirectional is the "Example of an application calling the zdnn_lstm API
// (multi-layer bi-directional)".
func lstmMultiLayerBidirectional(ctx context.Context, s *zdnn.Session) ([][]float32, error) {
	input, err := sequence(ctx, s)
	if err != nil {
		return nil, err
	}
	layers := []*layer{
		{kind: zdnn.RNN_TYPE_LSTM, direction: zdnn.BIDIR, ways: 2, features: features, hidden: 5},
		{
			kind: zdnn.RNN_TYPE_LSTM, previous: zdnn.PREV_LAYER_BIDIR, direction: zdnn.BIDIR,
			ways: 2, features: 2 * 5, hidden: 4,
		},
	}
	outputs := []*zdnn.Ztensor{input}
	for _, l := range layers {
		hn, err := plain(ctx, s, zdnn.ZDNN_4DS, timesteps, 2, batches, l.hidden)
		if err != nil {
			return nil, err
		}
		outputs = append(outputs, hn)
	}
	for i, l := range layers {
		if err := l.lstm(ctx, s, outputs[i], outputs[i+1], nil); err != nil {
			return nil, err
		}
	}
	var arrays [][]float32
	for _, hn := range outputs[1:] {
		data, err := zdnn.TransformOrigtensor[float32](ctx, hn, nil)
		if err != nil {
			return nil, err
		}
		arrays = append(arrays, data)
	}
	return arrays, free(ctx, outputs...)
}

// gruForward is the "Example of an application calling the zdnn_gru API (forward)".
func gruForward(ctx context.Context, s *zdnn.Session) ([][]float32, error) {
	l := &layer{kind: zdnn.RNN_TYPE_GRU, direction: zdnn.FWD, ways: 1, features: features, hidden: 5}
	input, err := sequence(ctx, s)
	if err != nil {
		return nil, err
	}
	o, err := l.operands(ctx, s)
	if err != nil {
		return nil, err
	}
	hn, err := plain(ctx, s, zdnn.ZDNN_4DS, 1, 1, batches, l.hidden)
	if err != nil {
		return nil, err
	}
	_, err = zdnn.Gru(ctx, input, o[0], o[1], o[2], o[3], o[4], l.direction, hn, false)
	if err != nil {
		return nil, err
	}
	hnData, err := zdnn.TransformOrigtensor[float32](ctx, hn, nil)
	if err != nil {
		return nil, err
	}
	return [][]float32{hnData}, free(ctx, append(o, input, hn)...)
}
