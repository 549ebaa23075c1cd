// SPDX-License-Identifier: Apache-2.0

package nnpa_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

var programs = regexp.MustCompile("(?s)```go\n(package main\n.*?)```")

// Every program of the README compiles and runs, on a private server.
func TestReadme(t *testing.T) {
	if _, err := exec.LookPath("nnpa-server"); err != nil && os.Getenv("NNPA_REQUIRE_TOOLCHAINS") != "1" {
		t.Skip("no nnpa-server on the PATH (pip install 'nnpa[server]')")
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := programs.FindAllSubmatch(text, -1)
	if len(found) == 0 {
		t.Fatal("README.md has no program")
	}
	for _, one := range found {
		file := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(file, one[1], 0o600); err != nil {
			t.Fatal(err)
		}
		if told, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil {
			t.Errorf("%s\n%s", told, one[1])
		}
		if told, err := exec.Command("go", "run", file).CombinedOutput(); err != nil {
			t.Errorf("%s\n%s", told, one[1])
		}
	}
}
