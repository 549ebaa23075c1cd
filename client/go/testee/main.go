// SPDX-License-Identifier: Apache-2.0

// The testee of the Go SDK answers frames on stdin and stdout, and calls public functions only:
// deploy/docs/develop/sdk-contract.md, "Testee". ZDNN_SERVER is the server's address.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// longestFrame bounds the announced length of a frame.
const maxFrame = 1 << 28

type request struct {
	File   string `json:"file"`
	Local  string `json:"local"`
	Vector vector `json:"vector"`
}

type answer map[string]any

func main() {
	if err := serve(os.Stdin, os.Stdout, os.Getenv("ZDNN_SERVER")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve answers frames until there are no more.
func serve(input io.Reader, output io.Writer, target string) error {
	source := bufio.NewReader(input)
	for {
		var req request
		if err := receive(source, &req); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		reply, err := answerOf(context.Background(), target, &req)
		if err != nil {
			return err
		}
		reply["name"] = req.Vector.Name
		if err := send(output, reply); err != nil {
			return err
		}
	}
}

func answerOf(ctx context.Context, target string, req *request) (answer, error) {
	if req.Local != "" {
		reply, err := callLocal(ctx, target, req.Local, req.Vector.Arguments)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", req.Local, err)
		}
		reply["local"] = req.Local
		return reply, nil
	}
	reply, err := runVector(ctx, target, &req.Vector)
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", req.File, req.Vector.Name, err)
	}
	reply["file"] = req.File
	return reply, nil
}

func receive(source io.Reader, into *request) error {
	var header [4]byte
	if _, err := io.ReadFull(source, header[:]); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint32(header[:])
	if size > maxFrame {
		return fmt.Errorf("frame: %d bytes, expected at most %d", size, maxFrame)
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(source, raw); err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

func send(output io.Writer, reply answer) error {
	raw, err := json.Marshal(reply)
	if err != nil {
		return err
	}
	header := binary.LittleEndian.AppendUint32(nil, uint32(len(raw)))
	_, err = output.Write(append(header, raw...))
	return err
}
