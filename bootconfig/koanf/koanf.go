// Package koanf decodes documents of package bootconfig with koanf: YAML, TOML and any other format that koanf
// has a parser for, overlaid with layers such as the environment or flags. The module is versioned as package
// bootconfig describes.
package koanf

import (
	"errors"
	"fmt"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/v2"
)

// Decode returns a function for bootconfig.Options.Decode. It parses a document, overlays the layers in
// order, and decodes the result over the default, using the struct tag "koanf". It reads the layers
// again for each document.
//
// A field that is in neither the document nor a layer keeps its default. A list or map from one of them replaces
// the default list or map as a whole. Strings are converted to numbers, booleans and durations if a field needs
// those, because the environment contains only strings.
//
// A nil parser or layer is an error for the first document, which is Options.Embedded if it is set.
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
			ZeroFields: true, // otherwise a list that is shorter than the default would keep the last elements of the default
			DecodeHook: mapstructure.ComposeDecodeHookFunc(
				mapstructure.TextUnmarshallerHookFunc(),
				mapstructure.StringToTimeDurationHookFunc(),
				mapstructure.StringToSliceHookFunc(","),
			),
		}})
	}
}

// document is a koanf.Provider that provides a document's bytes.
type document []byte

func (d document) ReadBytes() ([]byte, error) { return d, nil }

func (d document) Read() (map[string]any, error) {
	return nil, errors.New("a document is bytes, and needs a parser")
}
