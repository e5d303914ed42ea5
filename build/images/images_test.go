package main

import (
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"outrider.dev/build/commands"
)

// The agent stands for all programs: what is pushed is the subject, and whether it was.
func TestRegistry(t *testing.T) {
	bin := t.TempDir()
	agent := filepath.Join(bin, commands.Agent)
	if err := errors.Join(commands.BuildFor(t.Context(), commands.Target{System: "linux", Arch: runtime.GOARCH}, bin, commands.Agent), os.Link(agent, filepath.Join(bin, commands.ControlPlane)), os.Link(agent, filepath.Join(bin, commands.Node))); err != nil {
		t.Fatal(err)
	}
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	full := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if full && req.Method == http.MethodPost {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		store.ServeHTTP(w, req)
	}))
	defer server.Close()
	hub := strings.TrimPrefix(server.URL, "http://") + "/team"
	args := []string{"-bin", bin, "-envoy", agent, "-tag", "1.2.3", "-o", "registry://" + hub}
	if status := run(t.Context(), args); status != 0 {
		t.Fatalf("status %d", status)
	}
	for _, image := range []string{"outriderd", "outrider-proxy", "outrider-node"} {
		ref, err := name.ParseReference(hub + "/" + image + ":1.2.3")
		if err != nil {
			t.Fatal(err)
		}
		index, err := remote.Index(ref, remote.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if manifest, err := index.IndexManifest(); err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].Platform.Architecture != runtime.GOARCH {
			t.Errorf("%s has %+v, %v", ref, manifest, err)
		}
	}
	full = true
	if status := run(t.Context(), append(args, "-o", "registry://"+hub+"/other")); status != 1 {
		t.Errorf("a registry that refuses: status %d, want 1", status)
	}
}

func TestUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"another architecture":           {"-arch", "riscv64"},
		"the same twice":                 {"-arch", runtime.GOARCH + "," + runtime.GOARCH},
		"no library of the other one":    {"-arch", "amd64,arm64"},
		"no host":                        {"-o", "registry://"},
		"another scheme":                 {"-o", "docker://registry.example/outrider"},
		"an argument that is not a flag": {"bin"},
	} {
		if status := run(t.Context(), args); status != 2 {
			t.Errorf("%s: status %d, want 2", name, status)
		}
	}
	if status := run(t.Context(), []string{"-bin", t.TempDir(), "-o", t.TempDir()}); status != 1 {
		t.Errorf("no commands: status %d, want 1", status)
	}
}
