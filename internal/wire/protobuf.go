package wire

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Field of a message. Its Kind says which of Bytes and Varint is set; of another kind
// there is no value.
type Field struct {
	Number protowire.Number
	Kind   protowire.Type
	Bytes  []byte
	Varint uint64
}

// Fields calls visit with each field of a message, until it returns an error.
func Fields(message []byte, visit func(Field) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return malformed(n)
		}
		message = message[n:]
		f := Field{Number: number, Kind: kind}
		switch kind {
		case protowire.BytesType:
			f.Bytes, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			f.Varint, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return malformed(n)
		}
		message = message[n:]
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

func malformed(code int) error {
	return errors.New("not a protobuf message: " + protowire.ParseError(code).Error())
}

// AppendField appends a field of bytes to a message.
func AppendField[T string | []byte](message []byte, number protowire.Number, value T) []byte {
	return protowire.AppendString(protowire.AppendTag(message, number, protowire.BytesType), string(value))
}

func appendVarint(message []byte, number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(message, number, protowire.VarintType), value)
}
