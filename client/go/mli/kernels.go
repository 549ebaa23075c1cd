// SPDX-License-Identifier: Apache-2.0

package mli

import (
	"context"
	"fmt"

	mliv1 "nnpa.dev/nnpa/gen/nnpa/mli/v1"
)

// RnnCellCfg is mli_rnn_cell_cfg, which is mli_lstm_cell_cfg too.
type RnnCellCfg struct {
	Mode mliv1.RnnMode
	Act  mliv1.RnnOutActivation
	// IrTsr holds intermediate results; nil is created.
	IrTsr *Tensor
}

// KrnFullyConnectedFx8 returns out = weights * in + bias: mli_krn_fully_connected_fx8. The fractional
// bits of out are an input: it is a tensor of Empty.
func (l *Library) KrnFullyConnectedFx8(ctx context.Context, in, weights, bias, out *Tensor) (*Tensor, error) {
	return l.fullyConnected(ctx, "krn_fully_connected_fx8", in, weights, bias, out)
}

// KrnFullyConnectedFx16 is mli_krn_fully_connected_fx16; see KrnFullyConnectedFx8.
func (l *Library) KrnFullyConnectedFx16(ctx context.Context, in, weights, bias, out *Tensor) (*Tensor, error) {
	return l.fullyConnected(ctx, "krn_fully_connected_fx16", in, weights, bias, out)
}

// KrnFullyConnectedFx8w16d is mli_krn_fully_connected_fx8w16d, 8-bit weights and bias and 16-bit data;
// see KrnFullyConnectedFx8.
func (l *Library) KrnFullyConnectedFx8w16d(ctx context.Context, in, weights, bias, out *Tensor) (*Tensor, error) {
	return l.fullyConnected(ctx, "krn_fully_connected_fx8w16d", in, weights, bias, out)
}

func (l *Library) fullyConnected(
	ctx context.Context, kernel string, in, weights, bias, out *Tensor,
) (*Tensor, error) {
	operands := []operand{{"in", in}, {"weights", weights}, {"bias", bias}, {"out", out}}
	return l.submit(ctx, call{kernel: kernel, operands: operands}, out)
}

// KrnLstmCellFx8 returns the outputs of an LSTM cell, and writes cell and cfg.IrTsr:
// mli_krn_lstm_cell_fx8.
func (l *Library) KrnLstmCellFx8(
	ctx context.Context, in, prevOut, weights, bias *Tensor, cfg RnnCellCfg, cell, out *Tensor,
) (*Tensor, error) {
	return l.lstmCell(ctx, "krn_lstm_cell_fx8", FX_8, in, prevOut, weights, bias, cfg, cell, out)
}

// KrnLstmCellFx16 is mli_krn_lstm_cell_fx16; see KrnLstmCellFx8.
func (l *Library) KrnLstmCellFx16(
	ctx context.Context, in, prevOut, weights, bias *Tensor, cfg RnnCellCfg, cell, out *Tensor,
) (*Tensor, error) {
	return l.lstmCell(ctx, "krn_lstm_cell_fx16", FX_16, in, prevOut, weights, bias, cfg, cell, out)
}

// KrnLstmCellFx8w16d is mli_krn_lstm_cell_fx8w16d, 8-bit weights and bias and 16-bit data; see
// KrnLstmCellFx8.
func (l *Library) KrnLstmCellFx8w16d(
	ctx context.Context, in, prevOut, weights, bias *Tensor, cfg RnnCellCfg, cell, out *Tensor,
) (*Tensor, error) {
	return l.lstmCell(ctx, "krn_lstm_cell_fx8w16d", FX_16, in, prevOut, weights, bias, cfg, cell, out)
}

func (l *Library) lstmCell(
	ctx context.Context, kernel string, kind mliv1.ElType,
	in, prevOut, weights, bias *Tensor, cfg RnnCellCfg, cell, out *Tensor,
) (*Tensor, error) {
	operands := []operand{
		{"in", in}, {"prev_out", prevOut}, {"weights", weights}, {"bias", bias}, {"cell", cell},
	}
	if err := require(kernel, operands); err != nil {
		return nil, err
	}
	size := sizeOf(cell.Shape())
	if cfg.IrTsr == nil {
		cfg.IrTsr = Empty(4*size, kind, 0)
	}
	if out == nil {
		out = Empty(size*frames(in, cfg), kind, prevOut.FracBits())
	}
	operands = append(operands, operand{"out", out}, operand{"cfg.ir_tsr", cfg.IrTsr})
	return l.submit(ctx, call{kernel: kernel, operands: operands, cfg: &cfg}, out)
}

// KrnBasicRnnCellFx8 returns out = act(weights * [in, prevOut] + bias): mli_krn_basic_rnn_cell_fx8. An
// out that is nil is created with the fractional bits of prevOut.
func (l *Library) KrnBasicRnnCellFx8(
	ctx context.Context, in, prevOut, weights, bias *Tensor, cfg RnnCellCfg, out *Tensor,
) (*Tensor, error) {
	return l.basicRnnCell(ctx, "krn_basic_rnn_cell_fx8", FX_8, in, prevOut, weights, bias, cfg, out)
}

// KrnBasicRnnCellFx16 is mli_krn_basic_rnn_cell_fx16; see KrnBasicRnnCellFx8.
func (l *Library) KrnBasicRnnCellFx16(
	ctx context.Context, in, prevOut, weights, bias *Tensor, cfg RnnCellCfg, out *Tensor,
) (*Tensor, error) {
	return l.basicRnnCell(ctx, "krn_basic_rnn_cell_fx16", FX_16, in, prevOut, weights, bias, cfg, out)
}

// KrnBasicRnnCellFx8w16d is mli_krn_basic_rnn_cell_fx8w16d, 8-bit weights and bias and 16-bit data; see
// KrnBasicRnnCellFx8.
func (l *Library) KrnBasicRnnCellFx8w16d(
	ctx context.Context, in, prevOut, weights, bias *Tensor, cfg RnnCellCfg, out *Tensor,
) (*Tensor, error) {
	return l.basicRnnCell(ctx, "krn_basic_rnn_cell_fx8w16d", FX_16, in, prevOut, weights, bias, cfg, out)
}

func (l *Library) basicRnnCell(
	ctx context.Context, kernel string, kind mliv1.ElType,
	in, prevOut, weights, bias *Tensor, cfg RnnCellCfg, out *Tensor,
) (*Tensor, error) {
	operands := []operand{{"in", in}, {"prev_out", prevOut}, {"weights", weights}, {"bias", bias}}
	if err := require(kernel, operands); err != nil {
		return nil, err
	}
	size := sizeOf(bias.Shape())
	if cfg.IrTsr == nil {
		cfg.IrTsr = Empty(size, kind, 0)
	}
	if out == nil {
		out = Empty(size*frames(in, cfg), kind, prevOut.FracBits())
	}
	operands = append(operands, operand{"out", out}, operand{"cfg.ir_tsr", cfg.IrTsr})
	return l.submit(ctx, call{kernel: kernel, operands: operands, cfg: &cfg}, out)
}

// frames returns how many frames give an output each.
func frames(in *Tensor, cfg RnnCellCfg) int {
	if cfg.Mode == mliv1.RnnMode_RNN_BATCH_TO_BATCH && len(in.Shape()) > 0 {
		return int(in.Shape()[0])
	}
	return 1
}

// require returns the error of the first operand that is no tensor.
func require(kernel string, operands []operand) error {
	for _, o := range operands {
		if o.tensor == nil || o.tensor.fields == nil {
			return fmt.Errorf("mli_%s: %s: %v, expected a tensor of Fx, Quantise or Empty", kernel, o.field, o.tensor)
		}
	}
	return nil
}

// KrnTanhFx8 returns the hyperbolic tangent of each element: mli_krn_tanh_fx8. It works in place when
// out is in.
func (l *Library) KrnTanhFx8(ctx context.Context, in, out *Tensor) (*Tensor, error) {
	return l.activation(ctx, "krn_tanh_fx8", FX_8, in, out)
}

// KrnTanhFx16 is mli_krn_tanh_fx16; see KrnTanhFx8.
func (l *Library) KrnTanhFx16(ctx context.Context, in, out *Tensor) (*Tensor, error) {
	return l.activation(ctx, "krn_tanh_fx16", FX_16, in, out)
}

// KrnSigmFx8 returns the sigmoid of each element: mli_krn_sigm_fx8. It works in place when out is in.
func (l *Library) KrnSigmFx8(ctx context.Context, in, out *Tensor) (*Tensor, error) {
	return l.activation(ctx, "krn_sigm_fx8", FX_8, in, out)
}

// KrnSigmFx16 is mli_krn_sigm_fx16; see KrnSigmFx8.
func (l *Library) KrnSigmFx16(ctx context.Context, in, out *Tensor) (*Tensor, error) {
	return l.activation(ctx, "krn_sigm_fx16", FX_16, in, out)
}

func (l *Library) activation(
	ctx context.Context, kernel string, kind mliv1.ElType, in, out *Tensor,
) (*Tensor, error) {
	if err := require(kernel, []operand{{"in", in}}); err != nil {
		return nil, err
	}
	if out == nil { // as many elements as the input has room for: a batch may not have filled it yet
		out = Empty(len(in.memory)/elementSizes[kind], kind, 0)
	}
	return l.submit(ctx, call{kernel: kernel, operands: []operand{{"in", in}, {"out", out}}}, out)
}

// HlpConvertTensor converts each element to the type and parameters of dst, and returns it:
// mli_hlp_convert_tensor.
func (l *Library) HlpConvertTensor(ctx context.Context, src, dst *Tensor) (*Tensor, error) {
	operands := []operand{{"src", src}, {"dst", dst}}
	return l.submit(ctx, call{kernel: "hlp_convert_tensor", operands: operands}, dst)
}
