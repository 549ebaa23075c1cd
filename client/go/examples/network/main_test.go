// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"nnpa.dev/nnpa/zdnn"
)

// A model that adds its input to itself, made by ONNX's own helpers, doubles ones; no model is refused.
func TestRun(t *testing.T) {
	required := os.Getenv("NNPA_REQUIRE_TOOLCHAINS") == "1"
	if _, err := exec.LookPath("nnpa-server"); err != nil && !required {
		t.Skip("no nnpa-server on the PATH (pip install 'nnpa[server]')")
	}
	ctx := context.Background()
	s, err := zdnn.Connect(ctx, "", zdnn.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var printed strings.Builder
	err = run(ctx, s.Target(), "testdata/double.onnx", &printed)
	if status.Code(err) == codes.Unimplemented && !required {
		t.Skip("the server was installed without ONNX (pip install 'nnpa[onnx]')")
	}
	if err != nil {
		t.Fatal(err)
	}
	expected := "Network(network_1 on telum2: x float32[2 3] -> y float32[2 3])\n" +
		"NetworkReport(network_1 on telum2: 1 nodes on the accelerator, 0 on the host, 0 folded)\n" +
		"y [2 3] [2 2 2 2 2 2]\n"
	if printed.String() != expected {
		t.Error(printed.String())
	}
	if err := run(ctx, s.Target(), "main.go", &printed); err == nil || !strings.Contains(err.Error(), "MODEL_INVALID") {
		t.Error(err)
	}
}
