// Package cniconf keeps Outrider's plugin in a node's network configuration, which another program owns
// and may write at any time.
//
// It appends an element to a list of plugins by editing the bytes: nothing else changes, and removing the element
// restores the original file. A file with a single plugin cannot contain a second one. In that case a list with
// the same plugin and ours is written under a name that sorts before the name of the file.
package cniconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxSize limits the size of a configuration.
const maxSize = 1 << 20

// A span is a part of a text.
type span struct{ from, to int }

// elements returns the positions of the elements of the list "plugins", and whether each has the given
// type.
func elements(text []byte, plugin string) (spans []span, ours []bool, err error) {
	if len(text) > maxSize {
		return nil, nil, fmt.Errorf("it has %d bytes, and at most %d are possible", len(text), maxSize)
	}
	if !json.Valid(text) {
		return nil, nil, errors.New("it is not JSON")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, errors.New("it is no object")
	}
	found := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, nil, err
		}
		if key != "plugins" {
			var skipped json.RawMessage
			if err := d.Decode(&skipped); err != nil {
				return nil, nil, err
			}
			continue
		}
		if found {
			return nil, nil, errors.New(`it has "plugins" twice`)
		}
		found = true
		if t, err := d.Token(); err != nil || t != json.Delim('[') {
			return nil, nil, errors.New(`"plugins" is no list`)
		}
		for d.More() {
			var element json.RawMessage
			if err := d.Decode(&element); err != nil {
				return nil, nil, err
			}
			to := int(d.InputOffset())
			spans = append(spans, span{to - len(element), to})
			ours = append(ours, isType(element, plugin))
		}
		if _, err := d.Token(); err != nil {
			return nil, nil, err
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("there is more after the object")
	}
	return spans, ours, nil
}

func isType(element []byte, plugin string) bool {
	var e map[string]json.RawMessage // keys are case-sensitive, as in the runtime
	var name string
	return json.Unmarshal(element, &e) == nil && json.Unmarshal(e["type"], &name) == nil && name == plugin
}

// Insert returns a list of plugins with an entry as its last element. If the entry is there already, the list
// stays as it is; an entry of the same type that is elsewhere or different is replaced.
func Insert(text []byte, plugin, entry string) ([]byte, error) {
	spans, ours, err := elements(text, plugin)
	if err != nil {
		return nil, err
	}
	if n := len(spans); n > 1 && ours[n-1] && string(text[spans[n-1].from:spans[n-1].to]) == entry && count(ours) == 1 {
		return text, nil
	}
	if text, err = Remove(text, plugin); err != nil {
		return nil, err
	}
	if spans, _, err = elements(text, plugin); err != nil {
		return nil, err
	}
	if len(spans) == 0 {
		return nil, errors.New("it has no plugins")
	}
	end := spans[len(spans)-1].to
	return bytes.Join([][]byte{text[:end], []byte("," + entry), text[end:]}, nil), nil
}

// Remove returns a list of plugins without the elements of one type. It also removes the comma that each element
// needed, so that Insert followed by Remove restores the original bytes.
func Remove(text []byte, plugin string) ([]byte, error) {
	for {
		spans, ours, err := elements(text, plugin)
		if err != nil {
			return nil, err
		}
		i := last(ours)
		if i < 0 {
			return text, nil
		}
		cut := spans[i]
		switch {
		case i > 0:
			cut.from = spans[i-1].to
		case len(spans) > 1:
			cut.to = spans[1].from
		}
		text = bytes.Join([][]byte{text[:cut.from], text[cut.to:]}, nil)
	}
}

func count(ours []bool) (n int) {
	for _, is := range ours {
		if is {
			n++
		}
	}
	return n
}

func last(ours []bool) int {
	for i := len(ours) - 1; i >= 0; i-- {
		if ours[i] {
			return i
		}
	}
	return -1
}

// list converts a configuration of a single plugin to a list that contains this plugin and an entry.
func list(text []byte, entry string) ([]byte, error) {
	if len(text) > maxSize || !json.Valid(text) {
		return nil, errors.New("it is not JSON, or too large")
	}
	var single map[string]json.RawMessage
	if err := json.Unmarshal(text, &single); err != nil {
		return nil, errors.New("it is no object")
	}
	var kind string
	if json.Unmarshal(single["type"], &kind) != nil || kind == "" {
		return nil, errors.New(`it has no "type"`)
	}
	var out bytes.Buffer
	out.WriteString("{")
	for _, key := range []string{"cniVersion", "name"} {
		if value, ok := single[key]; ok {
			fmt.Fprintf(&out, "%q:%s,", key, value)
		}
	}
	fmt.Fprintf(&out, "\"plugins\":[%s,%s]}\n", bytes.TrimSpace(text), entry)
	return out.Bytes(), nil
}
