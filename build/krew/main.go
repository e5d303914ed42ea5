// Command krew writes the manifest by which krew installs the command outrider as kubectl outrider:
// from the version and the checksums of a release's archives. "make krew" calls it.
package main

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"strings"
	"text/template"
)

//go:embed outrider.yaml.tmpl
var text string

var manifest = template.Must(template.New("outrider.yaml").Parse(text))

func main() { os.Exit(run(os.Args[1:], os.Stderr)) }

// run is main without the process. It returns the exit status: 0 written, 1 not, 2 usage.
func run(args []string, stderr io.Writer) int {
	fs := flag.NewFlagSet("krew", flag.ContinueOnError)
	fs.SetOutput(stderr)
	sums := fs.String("checksums", "bin/release/checksums.txt", "`file` with the checksums of the archives, as sha256sum writes them")
	at := fs.String("url", "https://outrider.dev/releases/v{version}", "`folder` in which the archives are published")
	out := fs.String("o", "bin/release/outrider.yaml", "`file` for the manifest; krew wants this name")
	if err := fs.Parse(args); err != nil || fs.NArg() > 0 {
		return 2
	}
	list, err := os.ReadFile(*sums)
	if err == nil {
		list, err = render(string(list), *at)
	}
	if err == nil {
		err = os.WriteFile(*out, list, 0o644)
	}
	if err != nil {
		fmt.Fprintf(stderr, "krew: error: %v\n", err)
		return 1
	}
	return 0
}

// A release is what the manifest is made of.
type release struct {
	Version, URL string
	Archives     []archive
}

type archive struct{ Name, OS, Arch, Sum string }

// named is a line of the checksums for an archive of the command: checksum, version, system.
var named = regexp.MustCompile(`^([0-9a-f]{64}) [ *](outrider_([0-9A-Za-z.+-]+)_([a-z0-9]+)_([a-z0-9]+)\.(?:tar\.gz|zip))$`)

// version is a semantic version, as krew requires it.
var version = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$`)

// render makes the manifest. Other lines of the checksums, such as those of bills of materials, are
// no archives.
func render(sums, at string) ([]byte, error) {
	var r release
	for line := range strings.Lines(sums) {
		m := named.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil {
			continue
		}
		if r.Version != "" && r.Version != m[3] {
			return nil, fmt.Errorf("archives of versions %s and %s", r.Version, m[3])
		}
		r.Version = m[3]
		r.Archives = append(r.Archives, archive{Name: m[2], OS: m[4], Arch: m[5], Sum: m[1]})
	}
	switch {
	case len(r.Archives) == 0:
		return nil, fmt.Errorf("no line names an archive such as outrider_1.2.3_linux_amd64.tar.gz")
	case !version.MatchString(r.Version):
		return nil, fmt.Errorf("version %q: must be like 1.2.3", r.Version)
	}
	r.URL = strings.TrimSuffix(strings.ReplaceAll(at, "{version}", r.Version), "/")
	if u, err := url.Parse(r.URL); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("-url %q: must be like https://example.com/releases/v{version}", at)
	}
	var b bytes.Buffer
	err := manifest.Execute(&b, r)
	return b.Bytes(), err
}
