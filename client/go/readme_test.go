// SPDX-License-Identifier: Apache-2.0

package nnpa_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	programs = regexp.MustCompile("(?s)```go\n(package main\n.*?)```")
	suites   = regexp.MustCompile("(?s)```go\n(package \\w+_test\n.*?)```")
	prints   = regexp.MustCompile(`(?m)fmt\.Println\(.*\) +// (.*)$`)
	commands = regexp.MustCompile(`(?m)^    go ((?:mod|run) .*)$`)
)

// run runs a Go command that must succeed; it returns what the command prints.
func run(t *testing.T, source []byte, arguments ...string) []byte {
	t.Helper()
	output, err := exec.Command("go", arguments...).CombinedOutput()
	if err != nil {
		t.Errorf("go %v: %v\n%s\n%s", arguments, err, output, source)
	}
	return output
}

// manual returns the README and the SDK's page of the documentation.
func manual(t *testing.T) []byte {
	t.Helper()
	var text []byte
	for _, name := range []string{"README.md", "../../deploy/docs/go.md"} {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, page...)
	}
	return text
}

// Every program and test of the manual compiles and runs, on a private server.
func TestReadme(t *testing.T) {
	if _, err := exec.LookPath("nnpa-server"); err != nil && os.Getenv("NNPA_REQUIRE_TOOLCHAINS") != "1" {
		t.Skip("no nnpa-server on the PATH (pip install 'nnpa[server]')")
	}
	text := manual(t)
	matches := programs.FindAllSubmatch(text, -1)
	if len(matches) == 0 {
		t.Fatal("the manual has no program")
	}
	model, err := os.ReadFile("examples/network/testdata/double.onnx")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range matches {
		folder := t.TempDir()
		file := filepath.Join(folder, "main.go")
		if err := os.WriteFile(file, match[1], 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, match[1], "vet", file)
		run(t, match[1], "build", "-o", filepath.Join(folder, "program"), file)
		if err := os.WriteFile(filepath.Join(folder, "model.onnx"), model, 0o600); err != nil {
			t.Fatal(err)
		}
		program := exec.Command("./program")
		program.Dir = folder
		output, err := program.CombinedOutput()
		if err != nil {
			t.Errorf("%v\n%s\n%s", err, output, match[1])
		}
		for _, print := range prints.FindAllSubmatch(match[1], -1) {
			if !bytes.Contains(output, append(print[1], '\n')) {
				t.Errorf("%s\nexpected %s", output, print[1])
			}
		}
	}
	suite := suites.FindSubmatch(text)
	if suite == nil {
		t.Fatal("the manual has no tests")
	}
	file := filepath.Join(t.TempDir(), "readme_test.go")
	if err := os.WriteFile(file, suite[1], 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, suite[1], "vet", file)
	output := run(t, suite[1], "test", "-v", file)
	for _, name := range []string{"TestSum/telum1", "TestSum/telum2"} {
		if !bytes.Contains(output, []byte("--- PASS: "+name)) {
			t.Errorf("%s did not pass:\n%s", name, output)
		}
	}
}

// The README's commands run its first program in an empty folder.
func TestEmptyProject(t *testing.T) {
	if _, err := exec.LookPath("nnpa-server"); err != nil && os.Getenv("NNPA_REQUIRE_TOOLCHAINS") != "1" {
		t.Skip("no nnpa-server on the PATH (pip install 'nnpa[server]')")
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	clone, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "main.go"), programs.FindSubmatch(text)[1], 0o600); err != nil {
		t.Fatal(err)
	}
	var output []byte
	for _, match := range commands.FindAllSubmatch(text, -1) {
		line := strings.ReplaceAll(string(match[1]), "/path/to/nnpa", clone)
		command := exec.Command("go", strings.Fields(line)...)
		command.Dir = folder
		if output, err = command.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", line, err, output)
		}
	}
	if !bytes.Contains(output, []byte("[2 4 6 8] <nil>")) {
		t.Errorf("%s", output)
	}
}
