package bootconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// JSON decodes one JSON value into *into. Fields of *into that the document lacks keep their values. JSON
// ignores fields that T does not have. The value null, which would change nothing, is an error, and so is
// anything after the value.
func JSON[T any](data []byte, into *T) error {
	return decodeJSON(json.NewDecoder(bytes.NewReader(data)), data, into)
}

// StrictJSON is like [JSON], but a field that T does not have is an error. So every running program must know a
// field before the server sends it.
func StrictJSON[T any](data []byte, into *T) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return decodeJSON(d, data, into)
}

func decodeJSON[T any](d *json.Decoder, data []byte, into *T) error {
	if string(bytes.TrimSpace(data)) == "null" {
		return errors.New("decoding JSON: null is not a document")
	}
	if err := d.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the document is empty")
		}
		return fmt.Errorf("decoding JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("decoding JSON: something follows the value, at byte %d", d.InputOffset())
	}
	return nil
}
