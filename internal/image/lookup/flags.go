package lookup

import (
	"errors"
	"time"

	"github.com/spf13/pflag"
)

// Flags are those of commands that may look images up.
type Flags struct {
	on bool
	o  Options
}

// Add adds them to a command; a look-up takes no longer than timeout.
func (f *Flags) Add(fs *pflag.FlagSet, timeout time.Duration) {
	f.o.Timeout = timeout
	fs.BoolVar(&f.on, "resolve-images", false, "ask registries what images run, for containers that name no command: a gate needs it")
	fs.StringVar(&f.o.Config, "registry-config", "", "file with credentials for --resolve-images, as Docker's config.json")
	fs.StringSliceVar(&f.o.Insecure, "insecure-registry", nil, "registry that --resolve-images asks by plain HTTP, as HOST:PORT; may be repeated")
}

// Resolver returns one as the flags say; nil if they do not ask for it.
func (f *Flags) Resolver() (*Resolver, error) {
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
