// Package formats checks formats that cross versions: what one version of Outrider writes and another one reads while a
// cluster is upgraded or rolled back. docs/support.md says what that promises.
//
// Each has a file testdata/formats/NAME with what is written now, and may have files NAME.VERSION with what earlier
// versions wrote. All of them must be read. Where each is written and read, and what becomes of a field that the reader does not know:
//
//	names of annotations, labels, files, variables, objects, metadata of nodes, secrets of SDS: all, all (base/contract)
//	annotations, flags, variables of an injected pod: webhook; agent (refused), uninject, upgrade pods (core/pod/offline)
//	outrider.dev/node-work: webhook; outrider-node (refused: the pod does not start) (base/contract)
//	command lines of gates and probes: webhook, outrider-node; agent (refused) (base/contract)
//	states of containers in a pod: proxy, gates; the same (ignored) (core/agent/state)
//	files of the authority, also in the Secret outrider-ca: control plane; the same (ignored) (core/controlplane/ca)
//	question of the network's plugin: the outrider-node cni of the host; the daemon (ignored) (core/node/socket)
//	what a proxy requests and gets: Envoy, agent; control plane (ignored) (TestTwoVersions in test/agent)
//	answers of the control plane's status port: control plane; the command (ignored) (core/controlplane/debugapi)
//	the file of accepted configuration: agent; the next one, which drops another version's (core/agent/relay)
package formats

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var write = flag.Bool("write-formats", false, "write the present form of each format to its file")

const advice = `
The previous version reads this while a cluster is upgraded or rolled back (docs/support.md). A field that it ignores may be
added; anything else must be written in the former form for one release more. Then keep the former file as NAME.VERSION, run
"go test -write-formats" here, and try both versions with "make e2e-skew".`

// Check fails the test if the written form differs from its file, or if read does not make the same of an earlier form. The
// result of read is the written form of what was read.
func Check(t *testing.T, name, written string, read func(text string) (string, error)) {
	t.Helper()
	path := filepath.Join("testdata", "formats", name)
	if *write {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(written), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	now, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with -write-formats", err)
	}
	if string(now) != written {
		t.Errorf("%s is written as\n%s\nand was\n%s%s", name, written, now, advice)
	}
	earlier, err := filepath.Glob(path + ".*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range slices.Insert(earlier, 0, path) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(string(text)); err != nil || got != written {
			t.Errorf("%s is read as\n%s\n%v, want\n%s%s", file, got, err, written, advice)
		}
	}
}
