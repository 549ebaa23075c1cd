// SPDX-License-Identifier: Apache-2.0

package zdnn

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	serverReady = "nnpa-server listening on "
	// stopTimeout is how long a server may take to end before it is killed.
	stopTimeout = 10 * time.Second
)

// errNoServer names the package to install if there is no server to start.
var errNoServer = errors.New(
	"nnpa-server is not on the PATH: pip install '.[server]' in a clone of nnpa brings it",
)

// privateServer is nnpa-server as a child, on a Unix socket that only this user can reach.
type privateServer struct {
	target string
	folder string
	// input is closed with this process, at which the server ends.
	input   io.Closer
	process *exec.Cmd
}

// startServer starts a server and waits until it is ready, or the context is over.
func startServer(ctx context.Context) (*privateServer, error) {
	folder, err := os.MkdirTemp("", "nnpa-")
	if err != nil {
		return nil, err
	}
	listen := "unix:" + filepath.Join(folder, "nnpa.sock")
	command, log := exec.Command("nnpa-server", "--listen", listen, "--exit-with-parent"), &bytes.Buffer{}
	command.Stderr = log
	input, inputErr := command.StdinPipe()
	output, outputErr := command.StdoutPipe()
	if err := errors.Join(inputErr, outputErr, command.Start()); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			err = errNoServer
		}
		return nil, errors.Join(fmt.Errorf("private server: %w", err), os.RemoveAll(folder))
	}
	own := &privateServer{folder: folder, input: input, process: command}
	stopWatching := context.AfterFunc(ctx, func() { _ = command.Process.Kill() })
	defer stopWatching()
	line, err := bufio.NewReader(output).ReadString('\n')
	if target, ready := strings.CutPrefix(line, serverReady); err == nil && ready {
		own.target = strings.TrimSpace(target)
		return own, nil
	}
	stopped := own.stop()
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	last := strings.Join(lines[max(0, len(lines)-3):], " / ")
	return nil, errors.Join(fmt.Errorf("private server: ended early: %s", last), ctx.Err(), stopped)
}

// stop ends the server and removes its socket; nil is no server.
func (p *privateServer) stop() error {
	if p == nil {
		return nil
	}
	_ = p.process.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(stopTimeout, func() { _ = p.process.Process.Kill() })
	defer late.Stop()
	_ = p.input.Close()
	var code *exec.ExitError
	err := p.process.Wait()
	if errors.As(err, &code) {
		err = nil // ended by our signal
	}
	return errors.Join(err, os.RemoveAll(p.folder))
}
