// SPDX-License-Identifier: Apache-2.0

package zdnn_test

import (
	"reflect"
	"strings"
	"testing"

	"nnpa.dev/nnpa/zdnn"
)

// A probe has the findings of the Python client.
func TestProbeEqualsPythons(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	net := must(s.LoadFile(ctx, digits, zdnn.LoadOptions{}))(t)
	var expected struct{ Runs []zdnn.ProbeRun }
	printedByPython(t, &expected, "hosted_probe.py")
	runs := must(net.Probe(ctx, []uint32{1, 2}, "telum1"))(t)
	if !reflect.DeepEqual(runs, expected.Runs) || runs[0].Inputs != "zeros" {
		t.Errorf("%+v\nexpected %+v", runs, expected.Runs)
	}
}

// A probe of an unknown machine, or of a network that is closed, is refused.
func TestProbeMistakes(t *testing.T) {
	ctx, s := open(t, zdnn.Options{})
	net := must(s.LoadFile(ctx, double, zdnn.LoadOptions{CName: "double"}))(t)
	if _, err := net.Probe(ctx, nil, "z15"); err == nil || !strings.Contains(err.Error(), "machines") {
		t.Error(err)
	}
	if err := net.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Probe(ctx, nil); err == nil || err.Error() != "network double: is closed, Session.Load loads it again" {
		t.Error(err)
	}
}
