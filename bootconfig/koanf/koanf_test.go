package koanf_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	koanflib "github.com/knadh/koanf/v2"
	"outrider.dev/bootconfig"
	"outrider.dev/bootconfig/koanf"
)

type settings struct {
	Log struct {
		Level string `koanf:"level"`
	} `koanf:"log"`
	Limit   int            `koanf:"limit"`
	Timeout time.Duration  `koanf:"timeout"`
	Names   []string       `koanf:"names"`
	Weights map[string]int `koanf:"weights"`
}

func defaults() settings {
	s := settings{Limit: 10, Timeout: time.Second, Names: []string{"a", "b", "c"}, Weights: map[string]int{"a": 1}}
	s.Log.Level = "warn"
	return s
}

func TestLayersOverADocumentOverTheDefault(t *testing.T) {
	env := confmap.Provider(map[string]any{"log.level": "debug", "limit": "7"}, ".")
	with := func(change func(*settings)) settings {
		s := defaults()
		change(&s)
		return s
	}
	tests := map[string]struct {
		document string
		layers   []koanflib.Provider
		want     settings
		err      string
	}{
		"the document":              {"limit: 3\ntimeout: 5s", nil, with(func(s *settings) { s.Limit, s.Timeout = 3, 5*time.Second }), ""},
		"a shorter list":            {"names: [x]", nil, with(func(s *settings) { s.Names = []string{"x"} }), ""},
		"another map":               {"weights: {x: 2}", nil, with(func(s *settings) { s.Weights = map[string]int{"x": 2} }), ""},
		"a layer over the document": {"log: {level: info}\nlimit: 3", []koanflib.Provider{env}, with(func(s *settings) { s.Log.Level, s.Limit = "debug", 7 }), ""},
		"no YAML":                   {"a: [", nil, settings{}, "parsing the document"},
		"another type":              {"limit: [1, 2]", nil, settings{}, "limit"},
		"empty":                     {"", nil, settings{}, "is empty"},
		"no layer":                  {"limit: 3", []koanflib.Provider{nil}, settings{}, "layer 0 of koanf.Decode is nil"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := defaults()
			err := koanf.Decode[settings](yaml.Parser(), tt.layers...)([]byte(tt.document), &got)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v; want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"limit: 3", "a: [", "", "null", "- 1", "names: {a: 1}", "timeout: x", "1: 2", "? [a]\n: b", "a.b: 1\na: {b: 2}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := defaults()
		_ = koanf.Decode[settings](yaml.Parser())(data, &s) // a panic fails the test, although bootconfig would catch it
	})
}

// A document in YAML is overlaid with settings from the environment.
func Example() {
	dir, err := os.MkdirTemp("", "example.*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "settings.yaml")
	if err := os.WriteFile(path, []byte("limit: 3\nlog: {level: info}\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	file, err := bootconfig.NewFile(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	overrides := confmap.Provider(map[string]any{"log.level": "debug"}, ".") // or koanf's env.Provider
	config, err := bootconfig.Open(context.Background(), bootconfig.Options[settings]{
		Default:  defaults,
		Provider: file,
		Decode:   koanf.Decode[settings](yaml.Parser(), overrides),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer config.Close()
	if err := config.Wait(context.Background()); err != nil {
		fmt.Println(err)
	}
	fmt.Println(config.Get().Limit, config.Get().Log.Level, config.Get().Timeout)
	// Output: 3 debug 1s
}
