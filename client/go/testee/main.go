// SPDX-License-Identifier: Apache-2.0

// The testee of the Go SDK: frames of client/README.md, "Testee", on stdin and stdout. It calls the
// public functions of the SDK only. ZDNN_SERVER is the server's address.
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

// longestFrame bounds what a frame may announce.
const longestFrame = 1 << 28

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
		var asked request
		if err := receive(source, &asked); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		told, err := answerOf(context.Background(), target, &asked)
		if err != nil {
			return err
		}
		told["name"] = asked.Vector.Name
		if err := send(output, told); err != nil {
			return err
		}
	}
}

func answerOf(ctx context.Context, target string, asked *request) (answer, error) {
	if asked.Local != "" {
		told, err := callLocal(ctx, target, asked.Local, asked.Vector.Arguments)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", asked.Local, err)
		}
		told["local"] = asked.Local
		return told, nil
	}
	told, err := runVector(ctx, target, &asked.Vector)
	if err != nil {
		return nil, fmt.Errorf("%s/%s: %w", asked.File, asked.Vector.Name, err)
	}
	told["file"] = asked.File
	return told, nil
}

func receive(source io.Reader, into *request) error {
	var header [4]byte
	if _, err := io.ReadFull(source, header[:]); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint32(header[:])
	if size > longestFrame {
		return fmt.Errorf("frame: %d bytes, expected at most %d", size, longestFrame)
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(source, raw); err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

func send(output io.Writer, told answer) error {
	raw, err := json.Marshal(told)
	if err != nil {
		return err
	}
	header := binary.LittleEndian.AppendUint32(nil, uint32(len(raw)))
	_, err = output.Write(append(header, raw...))
	return err
}
