// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nnpa.dev/nnpa/zdnn"
)

// bytesOf returns the bytes of hexadecimal words, each word little-endian; XXXX*n is n times XXXX.
func bytesOf(text string) ([]byte, error) {
	raw := []byte{}
	for _, token := range strings.Fields(text) {
		word, times, repeated := strings.Cut(token, "*")
		count := 1
		if repeated {
			var err error
			if count, err = strconv.Atoi(times); err != nil {
				return nil, err
			}
		}
		cell, err := hex.DecodeString(word)
		if err != nil {
			return nil, err
		}
		slices.Reverse(cell)
		for range count {
			raw = append(raw, cell...)
		}
	}
	return raw, nil
}

// wordsOf returns little-endian bytes as text of words, width bytes each; runs as word*count.
func wordsOf(raw []byte, width int) string {
	var text strings.Builder
	for at := 0; at < len(raw); {
		end := at + width
		for end < len(raw) && string(raw[at:at+width]) == string(raw[end:end+width]) {
			end += width
		}
		cell := slices.Clone(raw[at : at+width])
		slices.Reverse(cell)
		fmt.Fprintf(&text, "%X", cell)
		if count := (end - at) / width; count > 1 {
			fmt.Fprintf(&text, "*%d", count)
		}
		text.WriteByte(' ')
		at = end
	}
	return strings.TrimSuffix(text.String(), " ")
}

// cellBytes returns the bytes of one cell of a type, transformed or not.
func cellBytes(kind zdnn.DataTypes) int {
	switch kind {
	case zdnn.ZDNN_BINARY_INT8, zdnn.INT8:
		return 1
	case zdnn.ZDNN_DLFLOAT16, zdnn.FP16, zdnn.BFLOAT:
		return 2
	}
	return 4
}
