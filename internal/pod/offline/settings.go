package offline

import (
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/pod/inject"
)

// Settings are where the settings of the mesh come from. Errors name the flags of
// "outrider inject".
type Settings struct {
	Values []string // files with values; later ones win
	Set    []string // single values in Helm's form; they win over the files
	Mesh   string   // file with the mesh configuration; may be empty

	ProbeKey string // file with the secret of [inject.DerivedProbeKey]; may be empty
}

// leastSecret is the length of a secret that cannot be guessed.
const leastSecret = 16

// Read reads the settings into o. The notes are about settings without effect.
func (s Settings) Read(o *inject.Options) (notes []string, err error) {
	all := map[string]any{}
	for _, file := range s.Values {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--values: %w", err)
		}
		var one map[string]any
		if err := yaml.Unmarshal(data, &one); err != nil {
			return nil, fmt.Errorf("--values: %s: %w", file, err)
		}
		all = inject.Overlay(all, one)
	}
	for _, setting := range s.Set {
		if err := inject.SetValue(all, setting); err != nil {
			return nil, fmt.Errorf("--set: %w", err)
		}
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		return nil, err
	}
	if o.Values, notes, err = inject.ParseValues(text); err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	if s.ProbeKey != "" {
		secret, err := os.ReadFile(s.ProbeKey)
		if err != nil {
			return nil, fmt.Errorf("--probe-key: %w", err)
		}
		if len(secret) < leastSecret {
			return nil, fmt.Errorf("--probe-key: %s has %d bytes; use %d or more, for example of: head -c 32 /dev/urandom", s.ProbeKey, len(secret), leastSecret)
		}
		o.ProbeKey = inject.DerivedProbeKey(secret)
	}
	if s.Mesh == "" {
		return notes, nil
	}
	data, err := os.ReadFile(s.Mesh)
	if err != nil {
		return nil, fmt.Errorf("--mesh-config: %w", err)
	}
	if o.Mesh, err = inject.ParseMesh(data); err != nil {
		return nil, fmt.Errorf("--mesh-config: %s: %w", s.Mesh, err)
	}
	for _, n := range o.Mesh.Notes {
		notes = append(notes, "--mesh-config: "+n)
	}
	return notes, nil
}
