package relay

import (
	"maps"
	"slices"

	"outrider.dev/internal/wire"
)

// requestOf is a message of Envoy.
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
