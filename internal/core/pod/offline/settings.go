package offline

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"outrider.dev/internal/base/manifest"
	"outrider.dev/internal/core/pod/inject"
	"outrider.dev/internal/core/pod/inject/settings"
)

// Settings names the sources of the mesh's settings. Error messages name the flags of "outrider inject".
type Settings struct {
	Values []string // files with values; later ones take precedence
	Set    []string // single values in Helm's form; they take precedence over the files
	Mesh   string   // file with the mesh configuration; may be empty

	ProbeKey string // file with the secret of [inject.DerivedProbeKey]; may be empty
}

// leastSecret is the minimum length of a secret in bytes, so that it cannot be guessed.
const leastSecret = 16

// Read reads the settings into o. The notes concern settings that have no effect.
func (s Settings) Read(o *inject.Options) (notes []string, err error) {
	if notes, err = s.readValues(o); err != nil {
		return nil, err
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
	if o.Mesh, err = settings.ParseMesh(data); err != nil {
		return nil, fmt.Errorf("--mesh-config: %s: %w", s.Mesh, err)
	}
	for _, n := range o.Mesh.Notes {
		notes = append(notes, "--mesh-config: "+s.Mesh+": "+n)
	}
	return notes, nil
}

// readValues reads the files and the single values and merges them as Helm does: later ones take precedence, and
// only the merged values need to be complete. Errors and notes name the source that causes them.
func (s Settings) readValues(o *inject.Options) (notes []string, err error) {
	sources, all, err := s.sources()
	if err != nil {
		return nil, err
	}
	var warnings []string
	o.Values, warnings, err = checked(all)
	incomplete := false
	for _, one := range sources {
		if err != nil && one.err != nil && strings.Contains(err.Error(), one.err.Error()) {
			return nil, fmt.Errorf("%s: %w", one.name, one.err)
		}
		incomplete = incomplete || one.err != nil
		for _, w := range one.warnings {
			if n := one.name + ": " + w; !slices.Contains(notes, n) {
				notes = append(notes, n)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("--values and --set together: %w", err)
	}
	if incomplete { // warnings that concern the merged values
		for _, w := range warnings {
			notes = append(notes, "--values and --set together: "+w)
		}
	}
	return notes, nil
}

func checked(values map[string]any) (settings.Values, []string, error) {
	text, err := yaml.Marshal(values)
	if err != nil {
		return settings.Values{}, nil, err
	}
	return settings.ParseValues(text)
}

// A source is a file with values, or a single value, with the error and the warnings that it causes by itself.
type source struct {
	name     string
	warnings []string
	err      error
}

// sources reads each source of values. The result named all holds the merged values.
func (s Settings) sources() (out []source, all map[string]any, err error) {
	all = map[string]any{}
	add := func(name string, values map[string]any) {
		_, warnings, err := checked(values)
		out = append(out, source{name, warnings, err})
	}
	for _, file := range s.Values {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("--values: %w", err)
		}
		var one map[string]any
		if err := manifest.DecodeStrict(data, &one); err != nil {
			return nil, nil, fmt.Errorf("--values: %s: %w", file, err)
		}
		add("--values: "+file, one)
		all = settings.Overlay(all, one)
	}
	for _, setting := range s.Set {
		one := map[string]any{}
		for _, values := range []map[string]any{one, all} {
			if err := settings.SetValue(values, setting); err != nil {
				return nil, nil, fmt.Errorf("--set: %w", err)
			}
		}
		add("--set", one)
	}
	return out, all, nil
}
