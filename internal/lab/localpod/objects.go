package localpod

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"

	"outrider.dev/internal/base/manifest"
)

// Objects returns the ConfigMaps and Secrets in the YAML documents of a file. It ignores other objects.
func Objects(file string, data []byte) ([]corev1.ConfigMap, []corev1.Secret, error) {
	var maps []corev1.ConfigMap
	var secrets []corev1.Secret
	documents := k8syaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for i := 1; ; i++ {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return maps, secrets, nil
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: document %d: %w", file, i, err)
		}
		var head struct {
			Kind string `json:"kind"`
		}
		// Ignore the error: the code that reads the pod from the same file reports it.
		_ = manifest.Decode(text, &head)
		switch head.Kind {
		case "ConfigMap":
			var m corev1.ConfigMap
			err = manifest.DecodeStrict(text, &m)
			maps = append(maps, m)
		case "Secret":
			var s corev1.Secret
			err = manifest.DecodeStrict(text, &s)
			secrets = append(secrets, s)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: document %d: %s: %w", file, i, head.Kind, err)
		}
	}
}
