package webhook

import (
	"bytes"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"outrider.dev/internal/pod/inject"
)

// paths are a tree of them, into a pod. Below a step are the next ones, by name, "*" for the
// elements of a list.
type paths struct {
	below map[string]*paths
	what  what
}

// What stands at the end of a path.
type what int

const (
	nothing    what = iota
	unread          // a string that injection does not look at
	unreadName      // one that it does not look at in a pod with a controller
	controller      // whether one of the owners is it
)

func (p *paths) add(w what, path ...string) {
	for _, name := range path {
		if p.below == nil {
			p.below = map[string]*paths{}
		}
		if p.below[name] == nil {
			p.below[name] = &paths{}
		}
		p = p.below[name]
	}
	p.what = w
}

// unreadBy are the paths that count in a pod that is injected by o.
func unreadBy(o inject.Options) *paths {
	out := &paths{}
	for _, path := range inject.Unread(o) {
		out.add(unread, path...)
	}
	out.add(unreadName, inject.UnreadName...)
	out.add(controller, "metadata", "ownerReferences", "*", "controller")
	return out
}

// A blotter looks for what stands at the ends of paths.
type blotter struct {
	in       jsontext.Decoder
	from, to []int // of each string that is found, with its quotation marks
	name     int   // which of them is the pod's name; -1: none
	owned    bool  // the pod has a controller
}

var blotters = sync.Pool{New: func() any { return new(blotter) }}

// blotted is an object with blots in the place of what injection does not look at.
func blotted(object []byte, at *paths) ([]byte, error) {
	b := blotters.Get().(*blotter)
	defer blotters.Put(b)
	b.from, b.to, b.name, b.owned = b.from[:0], b.to[:0], -1, false
	b.in.Reset(bytes.NewBuffer(object), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	err := b.walk(at)
	b.in.Reset(bytes.NewBuffer(nil)) // no body is kept
	if err != nil {
		return nil, err
	}
	out, done := make([]byte, 0, len(object)+len(blot)*len(b.from)), 0
	for i := range b.from {
		if i == b.name && !b.owned {
			continue
		}
		out = append(out, object[done:b.from[i]]...)
		out = append(out, blot...)
		done = b.to[i]
	}
	return append(out, object[done:]...), nil
}

// walk goes through the next value.
func (b *blotter) walk(at *paths) error {
	if at == nil {
		return b.in.SkipValue()
	}
	switch kind := b.in.PeekKind(); {
	case kind == '{' || kind == '[':
		return b.inside(at, kind)
	case kind == 't' && at.what == controller:
		b.owned = true
	case kind == '"' && (at.what == unread || at.what == unreadName):
		if at.what == unreadName {
			b.name = len(b.from)
		}
		value, err := b.in.ReadValue()
		end := int(b.in.InputOffset())
		b.from, b.to = append(b.from, end-len(value)), append(b.to, end)
		return err
	}
	return b.in.SkipValue()
}

// inside goes through the members or elements of the next value.
func (b *blotter) inside(at *paths, kind jsontext.Kind) error {
	if _, err := b.in.ReadToken(); err != nil {
		return err
	}
	for end := kind + 2; b.in.PeekKind() != end; { // } comes two after {, as ] after [
		next := at.below["*"]
		if kind == '{' {
			name, err := b.in.ReadToken()
			if err != nil {
				return err
			}
			next = at.below[name.String()]
		}
		if err := b.walk(next); err != nil {
			return err
		}
	}
	_, err := b.in.ReadToken()
	return err
}
