// Package koanf decodes documents of package bootconfig by koanf: in YAML, TOML and whatever else
// koanf has a parser for, with layers such as the environment or flags over them. Versions are as
// in package bootconfig.
package koanf

import (
	"errors"
	"fmt"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/v2"
)

// Decode returns a function for bootconfig.Options.Decode. A document is parsed, the layers are
// laid over it in their order, and the result is decoded over the default, by the struct tag
// "koanf". Layers are read again with each document.
//
// A field that neither the document nor a layer has keeps its default; a list or map of them
// replaces that of the default as a whole. Strings are converted to numbers, booleans and
// durations where a field needs those, since the environment has only strings.
//
// A nil parser or layer is reported for the first document, which is that of Options.Embedded where
// there is one.
func Decode[T any](parser koanf.Parser, layers ...koanf.Provider) func(data []byte, into *T) error {
	return func(data []byte, into *T) error {
		if parser == nil {
			return errors.New("koanf.Decode has no parser")
		}
		k := koanf.New(".")
		if err := k.Load(document(data), parser); err != nil {
			return fmt.Errorf("parsing the document: %w", err)
		}
		if len(k.Raw()) == 0 {
			return errors.New("the document is empty")
		}
		for i, layer := range layers {
			if layer == nil {
				return fmt.Errorf("layer %d of koanf.Decode is nil", i)
			}
			if err := k.Load(layer, nil); err != nil {
				return fmt.Errorf("reading layer %d (%T) over the document: %w", i, layer, err)
			}
		}
		return k.UnmarshalWithConf("", into, koanf.UnmarshalConf{DecoderConfig: &mapstructure.DecoderConfig{
			Result: into, TagName: "koanf", WeaklyTypedInput: true,
			ZeroFields: true, // a shorter list must not keep the end of a longer default
			DecodeHook: mapstructure.ComposeDecodeHookFunc(
				mapstructure.TextUnmarshallerHookFunc(),
				mapstructure.StringToTimeDurationHookFunc(),
				mapstructure.StringToSliceHookFunc(","),
			),
		}})
	}
}

// document is a koanf.Provider of bytes.
type document []byte

func (d document) ReadBytes() ([]byte, error) { return d, nil }

func (d document) Read() (map[string]any, error) {
	return nil, errors.New("a document is bytes, and needs a parser")
}
