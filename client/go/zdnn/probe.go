// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"context"
	"encoding/json"
	"fmt"

	networkv1 "nnpa.dev/nnpa/gen/nnpa/network/v1"
)

// ProbeRun is one run of Probe: machine, inputs and findings.
type ProbeRun struct {
	Machine string
	// Sizes has the values of free dims by their names.
	Sizes map[string]int64
	// Inputs is the kind of the inputs: "zeros", "constants", "all masked" or "extremes".
	Inputs string
	// Nans counts the NaN elements of all outputs, Violations the calls with a range violation.
	Nans, Violations uint64
	// First is the node of the first violation, Limit why the run could not take place; else "".
	First, Limit string
}

// Probe runs the model at edge sizes, over degenerate inputs, on both Telums or the named machines, and
// reports runs that give NaN, violate the range or meet a limit. Default sizes of free dims are 1, 32,
// 64, 128 and their neighbours.
func (n *Network) Probe(ctx context.Context, sizes []uint32, machines ...string) ([]ProbeRun, error) {
	if n.closed {
		return nil, n.gone()
	}
	answer, err := n.api.ProbeNetwork(n.session.WithTicket(ctx), &networkv1.ProbeNetworkRequest{
		Session: n.session.message.Name, Network: n.message.Name, Sizes: sizes, Machines: machines,
	})
	if err != nil {
		return nil, n.session.explain(ctx, err)
	}
	var runs []ProbeRun
	if err := json.Unmarshal([]byte(answer.Json), &runs); err != nil {
		return nil, fmt.Errorf("the findings of the server: %w", err)
	}
	return runs, nil
}
