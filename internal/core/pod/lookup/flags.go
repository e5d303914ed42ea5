package lookup

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/spf13/pflag"
)

// Flags holds the values of the flags for looking up images. Several commands have these flags.
type Flags struct {
	on       bool
	networks []string
	o        Options
}

// Add defines the flags. The time for a look-up is limited by timeout. By default, registries may be in the
// internet and in the given private networks.
func (f *Flags) Add(fs *pflag.FlagSet, timeout time.Duration, networks []netip.Prefix) {
	f.o.Timeout = timeout
	for _, n := range networks {
		f.networks = append(f.networks, n.String())
	}
	fs.BoolVar(&f.on, "resolve-images", false, "read the command of an image from its registry, for containers without a command: a gate needs it")
	fs.StringVar(&f.o.Config, "registry-config", "", "file with credentials for --resolve-images, as Docker's config.json")
	fs.StringSliceVar(&f.o.Insecure, "insecure-registry", nil, "registry that --resolve-images contacts over plain HTTP, as HOST:PORT; may be repeated")
	fs.StringSliceVar(&f.networks, "registry-network", f.networks, "private network, such as 10.0.0.0/8, in which --resolve-images may contact registries; may be repeated")
}

// Resolver returns a resolver with the settings of the flags; nil if look-ups are disabled. The parameter proxy
// is [Options].Proxy.
func (f *Flags) Resolver(proxy func(*http.Request) (*url.URL, error)) (*Resolver, error) {
	f.o.Proxy = proxy
	for _, n := range f.networks {
		network, err := netip.ParsePrefix(n)
		if err != nil {
			return nil, fmt.Errorf("--registry-network %q: want a network, as 10.0.0.0/8", n)
		}
		f.o.Networks = append(f.o.Networks, network.Masked())
	}
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
