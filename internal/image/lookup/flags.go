package lookup

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/pflag"
)

// Flags are those of commands that can look up images.
type Flags struct {
	on bool
	o  Options
}

// Add adds the flags to a command; a look-up takes no longer than timeout.
func (f *Flags) Add(fs *pflag.FlagSet, timeout time.Duration) {
	f.o.Timeout = timeout
	fs.BoolVar(&f.on, "resolve-images", false, "look up in registries what images run, for containers that name no command: a gate needs it")
	fs.StringVar(&f.o.Config, "registry-config", "", "file with credentials for --resolve-images, as Docker's config.json")
	fs.StringSliceVar(&f.o.Insecure, "insecure-registry", nil, "registry that --resolve-images contacts by plain HTTP, as HOST:PORT; may be repeated")
}

// Resolver returns the resolver that the flags describe; nil if look-ups are off. Proxy is
// as that of [Options].
func (f *Flags) Resolver(proxy func(*http.Request) (*url.URL, error)) (*Resolver, error) {
	f.o.Proxy = proxy
	switch {
	case f.on:
		return New(f.o)
	case f.o.Config != "":
		return nil, errors.New("--registry-config has no effect without --resolve-images")
	case len(f.o.Insecure) > 0:
		return nil, errors.New("--insecure-registry has no effect without --resolve-images")
	}
	return nil, nil
}
