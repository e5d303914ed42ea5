package lookup

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"outrider.dev/internal/core/pod/inject/imagecmd"
)

// Limits for documents of registries. Registries accept manifests of up to 4 MiB (OCI distribution 1.1, "Pushing
// Manifests"). A configuration has a few KiB.
const (
	maxBytes     = 4 << 20 // size of a document
	maxPlatforms = 32
	maxCommand   = 32 << 10 // bytes of a command, which becomes part of a pod
	maxRequests  = 16       // concurrent requests of a resolver, each with a response of up to maxBytes
)

// find looks up an image in its registry. It also returns the time for which the result may be cached; 0 means
// forever.
func (r *Resolver) find(ctx context.Context, name reference.Named) (imagecmd.Command, time.Duration, error) {
	repository, err := r.open(name)
	if err != nil {
		return imagecmd.Command{}, failureLife, err
	}
	if d, ok := name.(reference.Digested); ok {
		return byDigest(repository.image(ctx, d.Digest()))
	}
	d, err := repository.resolve(ctx, name.(reference.Tagged).Tag())
	if err != nil {
		return imagecmd.Command{}, failureLife, err
	}
	// The answer for a digest may be in the cache.
	canonical, err := reference.WithDigest(reference.TrimNamed(name), d)
	if err != nil {
		return imagecmd.Command{}, failureLife, err
	}
	c, err := r.once(ctx, canonical.String(), func(ctx context.Context) (imagecmd.Command, time.Duration, error) {
		return byDigest(repository.image(ctx, d))
	})
	if err != nil && !isUnfit(err) {
		return c, failureLife, err
	}
	return c, tagLife, err
}

// byDigest adds the time for which a result for a digest may be cached.
func byDigest(c imagecmd.Command, err error) (imagecmd.Command, time.Duration, error) {
	if err != nil && !isUnfit(err) {
		return c, failureLife, err
	}
	return c, 0, err
}

// An unfit error reports an image whose command cannot be used. Repeating the look-up does not help.
type unfit struct{ why string }

func (u *unfit) Error() string { return u.why }

func isUnfit(err error) bool {
	var u *unfit
	return errors.As(err, &u)
}

func unfitf(format string, args ...any) error { return &unfit{fmt.Sprintf(format, args...)} }

// resolve returns the current digest of a tag. It tries HEAD first, because registries that limit the number of
// pulls do not count it as a pull.
func (g *repository) resolve(ctx context.Context, tag string) (digest.Digest, error) {
	_, header, err := g.fetch(ctx, http.MethodHead, "manifests/"+tag)
	if err != nil {
		return "", err
	}
	d := digest.Digest(header.Get("Docker-Content-Digest"))
	if d.Validate() == nil {
		return d, nil
	}
	body, _, err := g.fetch(ctx, http.MethodGet, "manifests/"+tag)
	return digest.FromBytes(body), err
}

// verified fetches the content with the given digest, and verifies the digest.
func (g *repository) verified(ctx context.Context, kind string, d digest.Digest) ([]byte, http.Header, error) {
	if err := d.Validate(); err != nil {
		return nil, nil, unfitf("its digest %q cannot be used: %v", d, err)
	}
	body, header, err := g.fetch(ctx, http.MethodGet, kind+"/"+d.String())
	if err != nil {
		return nil, nil, err
	}
	if got := d.Algorithm().FromBytes(body); got != d {
		return nil, nil, fmt.Errorf("%s sent something else for %s (%s): do not trust this registry", g.host, d, got)
	}
	return body, header, nil
}

// document fetches and parses an index or a manifest.
func (g *repository) document(ctx context.Context, d digest.Digest) (document, error) {
	body, header, err := g.verified(ctx, "manifests", d)
	if err != nil {
		return document{}, err
	}
	return parseDocument(body, header.Get("Content-Type"))
}

// image returns the command of the image with the given digest.
func (g *repository) image(ctx context.Context, d digest.Digest) (imagecmd.Command, error) {
	doc, err := g.document(ctx, d)
	if err != nil {
		return imagecmd.Command{}, err
	}
	if doc.config != nil {
		c, linux, err := g.config(ctx, *doc.config)
		if err == nil && !linux {
			err = unfitf("it is not for Linux")
		}
		c.Digest = d.String()
		return c, err
	}
	c, err := g.platforms(ctx, doc.platforms)
	c.Digest = d.String()
	return c, err
}

// platforms returns the command of an image for several platforms. It fails if the command differs between
// platforms.
func (g *repository) platforms(ctx context.Context, all []v1.Descriptor) (imagecmd.Command, error) {
	type found struct {
		command imagecmd.Command
		linux   bool
		err     error
	}
	answers := make([]found, len(all))
	var wait sync.WaitGroup
	for i, p := range all {
		wait.Go(func() {
			a := &answers[i]
			a.command, a.linux, a.err = g.platform(ctx, p)
		})
	}
	wait.Wait()
	first := -1
	for i, a := range answers {
		switch {
		case a.err != nil:
			return a.command, fmt.Errorf("platform %s: %w", platformName(all[i]), a.err)
		case !a.linux:
		case first < 0:
			first = i
		case !same(answers[first].command, a.command):
			return imagecmd.Command{}, unfitf("it runs %s on %s and %s on %s: name the command in the pod",
				Words(answers[first].command), platformName(all[first]), Words(a.command), platformName(all[i]))
		}
	}
	if first < 0 {
		return imagecmd.Command{}, unfitf("it has no platform that is Linux")
	}
	return answers[first].command, nil
}

func (g *repository) platform(ctx context.Context, d v1.Descriptor) (imagecmd.Command, bool, error) {
	doc, err := g.document(ctx, d.Digest)
	if err != nil {
		return imagecmd.Command{}, false, err
	}
	if doc.config == nil {
		return imagecmd.Command{}, false, unfitf("its index names another index: name the command in the pod")
	}
	return g.config(ctx, *doc.config)
}

func (g *repository) config(ctx context.Context, d v1.Descriptor) (imagecmd.Command, bool, error) {
	body, _, err := g.verified(ctx, "blobs", d.Digest)
	if err != nil {
		return imagecmd.Command{}, false, err
	}
	return parseConfig(body)
}

func same(a, b imagecmd.Command) bool {
	return slices.Equal(a.Entrypoint, b.Entrypoint) && slices.Equal(a.Cmd, b.Cmd)
}

// Words returns a command as a quoted string for messages, shortened if it is long.
func Words(c imagecmd.Command) string {
	text := strings.Join(slices.Concat(c.Entrypoint, c.Cmd), " ")
	if len(text) > 60 {
		text = strings.ToValidUTF8(text[:57], "") + "..."
	}
	return fmt.Sprintf("%q", text)
}

func platformName(d v1.Descriptor) string {
	if d.Platform == nil {
		return d.Digest.String()
	}
	name := d.Platform.OS + "/" + d.Platform.Architecture
	if d.Platform.Variant != "" {
		name += "/" + d.Platform.Variant
	}
	return name
}
