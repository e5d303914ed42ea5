package relay

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"testing"

	"outrider.dev/internal/base/wire"
)

// requestOf returns an encoded request of Envoy.
func requestOf(typeURL, nonce string, subscribe []string, initial map[string]string) []byte {
	m := wire.AppendField(nil, 2, typeURL)
	for _, name := range subscribe {
		m = wire.AppendField(m, 3, name)
	}
	for _, name := range slices.Sorted(maps.Keys(initial)) {
		m = wire.AppendField(m, 5, wire.AppendField(wire.AppendField(nil, 1, name), 2, initial[name]))
	}
	if nonce != "" {
		m = wire.AppendField(m, 6, nonce)
	}
	return m
}

// The number of names in a message is bounded, whichever field contains them.
func TestNamesAreBounded(t *testing.T) {
	request := func(raw []byte) error { _, err := parseRequest(raw); return err }
	response := func(raw []byte) error { _, err := parseResponse(raw); return err }
	for field, parse := range map[byte]func([]byte) error{3: request, 4: request, 2: response, 6: response} {
		one := []byte{field<<3 | 2, 0}
		if few, many := parse(bytes.Repeat(one, maxNames)), parse(bytes.Repeat(one, maxNames+2)); few != nil || !errors.Is(many, errNames) {
			t.Errorf("field %d: %v, %v; want %v of the second", field, few, many, errNames)
		}
	}
}
