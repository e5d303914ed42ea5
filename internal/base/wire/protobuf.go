package wire

import (
	"encoding/binary"
	"errors"
)

// A Field is one field of a message.
type Field struct {
	Number uint64
	Kind   Kind
	Bytes  []byte // value of a BytesField
	Varint uint64 // value of a VarintField
}

// A Kind names the encoding of a field's value (protobuf.dev, "Encoding").
type Kind uint8

// The kinds of fields whose values are decoded; Fields skips fixed-size numbers.
const (
	VarintField Kind = 0
	fixed64     Kind = 1
	BytesField  Kind = 2
	fixed32     Kind = 5
)

var errMessage = errors.New("not a protobuf message")

// Fields calls visit for each field of a message, until visit returns an error. A group, which proto3 does
// not have, is an error.
func Fields(message []byte, visit func(Field) error) error {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		f := Field{Number: tag >> 3, Kind: Kind(tag & 7)}
		if n <= 0 || f.Number == 0 || f.Number >= 1<<29 {
			return errMessage
		}
		message = message[n:]
		size := uint64(0)
		switch f.Kind {
		case VarintField, BytesField:
			if f.Varint, n = binary.Uvarint(message); n <= 0 {
				return errMessage
			}
			message = message[n:]
			if f.Kind == BytesField {
				size, f.Varint = f.Varint, 0
			}
		case fixed64:
			size = 8
		case fixed32:
			size = 4
		default:
			return errMessage
		}
		if size > uint64(len(message)) {
			return errMessage
		}
		if f.Kind == BytesField {
			f.Bytes = message[:size]
		}
		message = message[size:]
		if err := visit(f); err != nil {
			return err
		}
	}
	return nil
}

// AppendField appends a length-delimited field to a message.
func AppendField[T string | []byte](message []byte, number uint64, value T) []byte {
	message = binary.AppendUvarint(message, number<<3|uint64(BytesField))
	message = binary.AppendUvarint(message, uint64(len(value)))
	return append(message, value...)
}

// AppendVarint appends a varint field to a message.
func AppendVarint(message []byte, number, value uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(message, number<<3|uint64(VarintField)), value)
}
