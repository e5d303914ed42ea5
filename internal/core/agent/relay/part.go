package relay

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"io"
	"iter"
	"slices"
	"sync"

	"outrider.dev/internal/base/wire"
)

// A part is resources of a type in a record of the store.
type part struct {
	resources []resource // without raw
	places    []place    // of each; at and packed are not set
	record    []byte
}

// partsOf compresses resources, about recordSize of them at a time; a larger one for itself.
func partsOf(typeURL string, resources iter.Seq[resource]) iter.Seq[part] {
	return func(yield func(part) bool) {
		var p part
		start := wire.AppendField(nil, fieldType, typeURL)
		message := slices.Clone(start)
		for r := range resources {
			if len(message)+len(r.raw) > recordSize && len(p.places) > 0 {
				if !yield(p.with(pack(message), message)) {
					return
				}
				p, message = part{}, append(message[:0], start...)
			}
			message = wire.AppendField(message, fieldPut, r.raw)
			p.add(r, len(message)-len(r.raw))
		}
		if len(p.places) > 0 {
			yield(p.with(pack(message), message))
		}
	}
}

// add notes a resource at an offset of the message.
func (p *part) add(r resource, offset int) {
	p.places = append(p.places, place{version: r.version, offset: int32(offset), size: int32(len(r.raw))})
	r.raw = nil
	p.resources = append(p.resources, r)
}

// with sets the record, and divides it among the resources of its message.
func (p part) with(record, message []byte) part {
	p.record = record
	for i, at := range p.places {
		p.places[i].cost = int32(recordHead + int64(len(record))*int64(at.size)/int64(len(message)))
	}
	return p
}

// removal returns the record that removes names; nothing without any.
func removal(typeURL string, names []string) []byte {
	if len(names) == 0 {
		return nil
	}
	message := wire.AppendField(nil, fieldType, typeURL)
	for _, name := range names {
		message = wire.AppendField(message, fieldRemove, name)
	}
	return pack(message)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// writers have 1 MiB each. They are pooled because they are used for a moment.
var writers = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.BestSpeed)
	return w
}}

// pack returns the record of a message.
func pack(message []byte) []byte {
	b := bytes.NewBuffer(make([]byte, recordHead, recordHead+64+len(message)/4))
	w := writers.Get().(*flate.Writer)
	defer writers.Put(w)
	w.Reset(b)
	w.Write(message) // to memory: without an error
	w.Close()
	record := slices.Clone(b.Bytes())
	binary.LittleEndian.PutUint32(record, uint32(len(record)-recordHead))
	binary.LittleEndian.PutUint32(record[4:], crc32.Checksum(record[recordHead:], castagnoli))
	return record
}

// unpack returns the message of a record, of at most a size.
func unpack(packed []byte, limit int) ([]byte, error) {
	message, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), int64(limit)+1))
	if len(message) > limit {
		err = errFull
	}
	return message, err
}
