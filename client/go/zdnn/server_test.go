// SPDX-License-Identifier: Apache-2.0

package zdnn_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nnpa.dev/nnpa/zdnn"
)

const ready = "nnpa-server listening on "

// server is the address of the server of all tests: ZDNN_SERVER, or one that TestMain starts.
var server string

// TestMain starts nnpa-server from the PATH unless ZDNN_SERVER names one.
func TestMain(m *testing.M) {
	os.Exit(withServer(m))
}

func withServer(m *testing.M) int {
	if server = os.Getenv("ZDNN_SERVER"); server != "" {
		return m.Run()
	}
	folder, err := os.MkdirTemp("", "nnpa-go-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	target, stop, err := start("--listen", "unix:"+filepath.Join(folder, "nnpa.sock"))
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("NNPA_REQUIRE_TOOLCHAINS") != "1" {
		fmt.Println("skipped: no nnpa-server on the PATH, and no ZDNN_SERVER (pip install 'nnpa[server]')")
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	server = target
	return m.Run()
}

// start runs nnpa-server and returns the address of its first listener.
func start(flags ...string) (target string, stop func(), err error) {
	command := exec.Command("nnpa-server", append(flags, "--exit-with-parent")...)
	diagnostics := &bytes.Buffer{}
	command.Stderr = diagnostics
	input, err := command.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := command.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = input.Close()
		_ = command.Process.Signal(os.Interrupt)
		_ = command.Wait()
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, ready) {
		stop()
		return "", nil, fmt.Errorf("nnpa-server said %q: %w\n%s", line, err, diagnostics)
	}
	return strings.TrimSpace(strings.TrimPrefix(line, ready)), stop, nil
}

// open returns a session on the tests' server.
func open(t *testing.T, options zdnn.Options) (context.Context, *zdnn.Session) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	session, err := zdnn.Connect(ctx, server, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Error(err)
		}
	})
	return ctx, session
}

// vector returns a ztensor with the elements of one dimension.
func vector(t *testing.T, ctx context.Context, s *zdnn.Session, data ...float32) *zdnn.Ztensor {
	t.Helper()
	z, err := zdnn.NewZtensor(ctx, s, zdnn.ZDNN_1D, data, uint32(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return z
}

// values returns the elements of a ztensor.
func values(t *testing.T, ctx context.Context, z *zdnn.Ztensor) []float32 {
	t.Helper()
	data, err := zdnn.TransformOrigtensor[float32](ctx, z, nil)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// must stops a test at an error, and returns the value beside it.
func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
