// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"cmp"
	"fmt"
	"strings"

	zdnnv1 "nnpa.dev/nnpa/gen/nnpa/zdnn/v1"
)

// Status is the server's last description of a session: machine, limits, options, tensors and bytes. Do
// not change it.
type Status struct{ *zdnnv1.Session }

// String returns machine, version, tensors and bytes of the session, and never its name, which is a key.
func (s Status) String() string {
	return fmt.Sprintf("Session(of %s, zDNN %s: %d tensors, %d bytes)",
		machineName(s.Machine), s.LibraryVersion, s.TensorCount, s.StoredBytes)
}

// GoString is String, so that %#v shows no name either.
func (s Status) GoString() string { return s.String() }

// Machine is a machine with its answer to NNPA-QAF.
type Machine struct{ *zdnnv1.Machine }

// String returns the names of the machine and how many functions it has installed.
func (m Machine) String() string {
	installed := "no NNPA"
	if m.NnpaInstalled {
		installed = fmt.Sprintf("%d functions", len(m.Functions))
	}
	names := append([]string{machineName(m.Machine)}, m.Aliases...)
	return fmt.Sprintf("Machine(%s: %s, %s)", strings.Join(names, ", "), m.DisplayName, installed)
}

// machineName returns a machine's name as Options.Machine takes it, "custom" for a machine without a
// name.
func machineName(machine *zdnnv1.Machine) string {
	return cmp.Or(strings.TrimPrefix(machine.GetName(), "machines/"), "custom")
}

// Describe returns layout, sizes and type of a descriptor: "TensorDesc(ZDNN_2D 2x3 FP32)".
func Describe(desc *TensorDesc) string { return "TensorDesc(" + describe(desc) + ")" }
