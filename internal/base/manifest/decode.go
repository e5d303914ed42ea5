package manifest

import (
	"bytes"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/manifest/limits"
)

// StrictJSON converts a document to JSON. A duplicate key is an error. A key that overrides one from a
// merge key (<<) is no duplicate: it wins, before or after the merge key.
func StrictJSON(text []byte) ([]byte, error) {
	if err := limits.Document(text).Check(text); err != nil {
		return nil, err
	}
	raw, err := yaml.YAMLToJSONStrict(text)
	if err == nil || !bytes.Contains(text, []byte("<<")) {
		return raw, err
	}
	d, readErr := Read(text)
	if readErr != nil || d.Expand() != nil {
		return nil, err
	}
	expanded, printErr := yamlv3.Marshal(&d.node)
	if printErr != nil {
		return nil, err
	}
	return yaml.YAMLToJSONStrict(expanded)
}

// JSON converts a document to JSON. Of duplicate keys the last counts.
func JSON(text []byte) ([]byte, error) {
	if err := limits.Document(text).Check(text); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(text)
}

// Decode decodes a document by the rules of package json, ignoring fields that into does not have. Of
// duplicate keys the last counts.
func Decode(text []byte, into any) error {
	return decode(text, limits.Document(text), yaml.Unmarshal, into)
}

// DecodeStrict is Decode, except that duplicate and unknown fields are errors.
func DecodeStrict(text []byte, into any) error {
	return decode(text, limits.Document(text), yaml.UnmarshalStrict, into)
}

// DecodeAnnotation is [Decode] for a value within an object, limited by [limits.Annotation].
func DecodeAnnotation(text string, into any) error {
	return decode([]byte(text), limits.Annotation, yaml.Unmarshal, into)
}

// DecodeAnnotationStrict is [DecodeStrict] for a value within an object, limited by [limits.Annotation].
func DecodeAnnotationStrict(text string, into any) error {
	return decode([]byte(text), limits.Annotation, yaml.UnmarshalStrict, into)
}

func decode(text []byte, l limits.Limits, by func([]byte, any, ...yaml.JSONOpt) error, into any) error {
	if err := l.Check(text); err != nil {
		return err
	}
	return by(text, into)
}
