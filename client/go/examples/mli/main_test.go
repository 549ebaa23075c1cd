// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"

	"nnpa.dev/nnpa/zdnn"
)

// The layer's sums are exact, and tanh is within a unit of its last place.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath("nnpa-server"); err != nil && os.Getenv("NNPA_REQUIRE_TOOLCHAINS") != "1" {
		t.Skip("no nnpa-server on the PATH (pip install 'nnpa[server]')")
	}
	ctx := context.Background()
	s, err := zdnn.Connect(ctx, "", zdnn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var printed strings.Builder
	if err := run(ctx, s.Target(), &printed); err != nil {
		t.Fatal(err)
	}
	var sums, curves [2]float64
	_, err = fmt.Sscan(printed.String(), &sums[0], &sums[1], &curves[0], &curves[1])
	if err != nil || sums != [2]float64{1.25, 0} || curves[1] != 0 {
		t.Fatal(printed.String(), err)
	}
	if math.Abs(curves[0]-math.Tanh(1.25)) > 1.0/(1<<15) {
		t.Error(curves[0])
	}
}
