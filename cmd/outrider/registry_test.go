package main

import (
	"os"
	"strings"
	"testing"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/rogpeppe/go-internal/testscript"

	"outrider.dev/test/registry"
)

// startRegistry returns the command "registry" for scripts. "registry open FILE..." starts a registry with a few
// images, over plain HTTP, at $REGISTRY, and replaces REGISTRY in the files by its address. "registry private
// FILE..." does the same, but serves the images only to the user jo with the password secret.
func startRegistry(t *testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		r := registry.NewPlain(t)
		if args[0] == "private" {
			r.User, r.Password = "jo", "secret"
		}
		shop := v1.ImageConfig{Entrypoint: []string{"/entry.sh"}, Cmd: []string{"serve", "$(HOME)"}}
		r.Tag("shop/shop", "4", r.Index(r.Image("linux/amd64", shop), r.Image("linux/arm64", shop)).Digest)
		r.Tag("log", "latest", r.Image("linux/amd64", v1.ImageConfig{Entrypoint: []string{"/log"}, Cmd: []string{"--quiet"}}).Digest)
		r.Tag("differ", "1", r.Index(r.Image("linux/amd64", shop), r.Image("linux/arm64", v1.ImageConfig{Cmd: []string{"/arm"}})).Digest)
		ts.Setenv("REGISTRY", r.Host)
		for _, file := range args[1:] {
			text := strings.ReplaceAll(ts.ReadFile(file), "REGISTRY", r.Host)
			ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o644))
		}
	}
}
