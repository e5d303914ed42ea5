package manifest

import (
	"bytes"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/manifest/limits"
)

// StrictJSON converts a document to JSON. A duplicate key is an error. A key that is also in the mapping of a
// merge key (<<) is not a duplicate: its own value is used, whether it is before or after the merge key.
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

// JSON converts a document to JSON. The last of duplicate keys is used.
func JSON(text []byte) ([]byte, error) {
	if err := limits.Document(text).Check(text); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSON(text)
}

// Decode decodes a document by the rules of package json, and stores the result in into. It ignores unknown
// fields, and uses the last of duplicate keys.
func Decode(text []byte, into any) error {
	return decode(text, limits.Document(text), yaml.Unmarshal, into)
}

// DecodeStrict is like Decode, but duplicate and unknown fields are errors.
func DecodeStrict(text []byte, into any) error {
	return decode(text, limits.Document(text), yaml.UnmarshalStrict, into)
}

// DecodeAnnotation is like [Decode], for the value of an annotation. The limits are [limits.Annotation].
func DecodeAnnotation(text string, into any) error {
	return decode([]byte(text), limits.Annotation, yaml.Unmarshal, into)
}

// DecodeAnnotationStrict is like [DecodeStrict], for the value of an annotation. The limits are
// [limits.Annotation].
func DecodeAnnotationStrict(text string, into any) error {
	return decode([]byte(text), limits.Annotation, yaml.UnmarshalStrict, into)
}

func decode(text []byte, l limits.Limits, by func([]byte, any, ...yaml.JSONOpt) error, into any) error {
	if err := l.Check(text); err != nil {
		return err
	}
	return by(text, into)
}
