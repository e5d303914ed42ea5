package cniconf

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	plugin = "outrider-cni"
	entry  = `{"type":"outrider-cni","capabilities":{"a":true}}`
)

const flannel = `{
  "name": "cbr0",
  "cniVersion": "0.3.1", "mtu": 1e3, "n": 12345678901234567890,
  "plugins": [
    {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

func TestInsertAndRemove(t *testing.T) {
	with := strings.Replace(flannel, `"portMappings": true}}`, `"portMappings": true}},`+entry, 1)
	for name, tt := range map[string]struct{ text, want string }{
		"a list":                     {flannel, with},
		"a list that has it":         {with, with},
		"an entry of before":         {strings.Replace(with, `"a"`, `"b"`, 1), with},
		"written anew by jq":         {`{"plugins":[{"type":"x"},{ "type" : "outrider-cni" }]}`, `{"plugins":[{"type":"x"},` + entry + `]}`},
		"another plugin was added":   {`{"plugins":[{"type":"x"},` + entry + `,{"type":"y"}]}`, `{"plugins":[{"type":"x"},{"type":"y"},` + entry + `]}`},
		"twice":                      {`{"plugins":[` + entry + `, {"type":"x"},` + entry + `]}`, `{"plugins":[{"type":"x"},` + entry + `]}`},
		"the type in another key":    {`{"plugins":[{"type":"x","Type":"outrider-cni"}]}`, `{"plugins":[{"type":"x","Type":"outrider-cni"},` + entry + `]}`},
		"plugins of another object":  {`{"a":{"plugins":[]},"plugins":[{"type":"x"}]}`, `{"a":{"plugins":[]},"plugins":[{"type":"x"},` + entry + `]}`},
		"a comment in another field": {`{"_":"plugins","plugins":[{"type":"x"}]}`, `{"_":"plugins","plugins":[{"type":"x"},` + entry + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Insert([]byte(tt.text), plugin, entry)
			if diff := cmp.Diff(tt.want, string(got)); err != nil || diff != "" {
				t.Errorf("%v, (-want +got):\n%s", err, diff)
			}
		})
	}
	if got, err := Remove([]byte(with), plugin); err != nil || string(got) != flannel {
		t.Errorf("without the entry: %v\n%s", err, cmp.Diff(flannel, string(got)))
	}
	for _, text := range []string{``, `[]`, `{"plugins":{}}`, `{"plugins":[]}`, `{}`, `{"plugins":[` + entry + `]}`, `{"plugins":[{"type":"x"}],"plugins":[]}`, flannel + "{}", strings.Repeat(" ", maxSize+1)} {
		if got, err := Insert([]byte(text), plugin, entry); err == nil {
			t.Errorf("%.40q becomes %s", text, got)
		}
	}
}

// For any file, Insert changes nothing but the list, and Remove then restores the same bytes.
func FuzzEdit(f *testing.F) {
	f.Add([]byte(flannel))
	f.Add([]byte(`{"plugins":[{"type":"x"} , {"type":"outrider-cni"}] }`))
	f.Add([]byte(`{"a":1e3444444,"plugins":[{"type":"x"}]}`))
	f.Add([]byte(`{"plugins":[1,[],"a",null,` + entry + `],"a":{"plugins":[]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		without, err := Remove(text, plugin)
		if err != nil {
			return
		}
		with, err := Insert(text, plugin, entry)
		if err != nil {
			return
		}
		if back, err := Remove(with, plugin); err != nil || string(back) != string(without) {
			t.Errorf("%q becomes %q and then %q, %v; want %q", text, with, back, err, without)
		}
		var a, b map[string]any
		decode := func(text []byte, into *map[string]any) error {
			d := json.NewDecoder(bytes.NewReader(text))
			d.UseNumber() // numbers may exceed Go's types
			return d.Decode(into)
		}
		if err := errors.Join(decode(without, &a), decode(with, &b)); err != nil {
			t.Fatal(err)
		}
		list := b["plugins"].([]any)
		b["plugins"] = list[:len(list)-1]
		if diff := cmp.Diff(a, b); diff != "" {
			t.Errorf("%q: more than the entry has changed:\n%s", text, diff)
		}
		if again, err := Insert(with, plugin, entry); err != nil || string(again) != string(with) {
			t.Errorf("a second time %q becomes %q, %v", with, again, err)
		}
	})
}

func newDir(t *testing.T, files map[string]string) Dir {
	t.Helper()
	d := Dir{Path: t.TempDir(), Plugin: plugin, Entry: entry, Log: slog.New(slog.DiscardHandler)}
	for name, text := range files { // any order: the files are independent
		d.put(t, name, text)
	}
	return d
}

func (d Dir) put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.Path, name), []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
}

func (d Dir) files(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(d.Path, e.Name()))
		if errors.Is(err, fs.ErrNotExist) { // the file is being written
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(text)
	}
	return out
}

// The plugin is appended to the list in the configuration that the runtime uses. After the removal all
// files have their original bytes.
func TestInstall(t *testing.T) {
	const single = "{\"cniVersion\":\"0.3.1\",\"name\":\"multus\",\"type\":\"multus\",\"n\":1e3}\n"
	listed := `{"cniVersion":"0.3.1","name":"multus","plugins":[` + strings.TrimSpace(single) + "," + entry + "]}\n"
	with := strings.Replace(flannel, `true}}`+"\n  ]", `true}},`+entry+"\n  ]", 1)
	for name, tt := range map[string]struct{ files, want map[string]string }{
		"a list, the first of two": {
			map[string]string{"10-flannel.conflist": flannel, "20-other.conflist": flannel, "README": "x"},
			map[string]string{"10-flannel.conflist": with, "20-other.conflist": flannel, "README": "x"}},
		"a single plugin": {
			map[string]string{"00-multus.conf": single, "10-flannel.conflist": flannel},
			map[string]string{"00-multus.conf": single, "00-multus" + mark: listed, "10-flannel.conflist": flannel}},
		"a single plugin that was replaced by a list": {
			map[string]string{"00-multus" + mark: listed, "10-flannel.conflist": flannel},
			map[string]string{"10-flannel.conflist": with}},
		"a list of ours that is out of date": {
			map[string]string{"00-multus.json": single, "00-multus" + mark: "{}"},
			map[string]string{"00-multus.json": single, "00-multus" + mark: listed}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDir(t, tt.files)
			for range 2 {
				if err := d.Install(); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, d.files(t)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
			names := slices.Sorted(maps.Keys(tt.want))
			if info, err := os.Stat(filepath.Join(d.Path, names[0])); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("mode %v, %v; want that of before", info.Mode(), err)
			}
			if err := d.Remove(); err != nil {
				t.Fatal(err)
			}
			maps.DeleteFunc(tt.files, func(name, _ string) bool { return strings.HasSuffix(name, mark) })
			if diff := cmp.Diff(tt.files, d.files(t)); diff != "" {
				t.Errorf("after the end (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWithoutAnotherPluginThereIsNone(t *testing.T) {
	d := newDir(t, map[string]string{"10-x" + mark: "{}", "99-loopback.txt": ""})
	if err := d.Install(); !errors.Is(err, ErrNone) {
		t.Errorf("Install: %v", err)
	}
	if diff := cmp.Diff(map[string]string{"99-loopback.txt": ""}, d.files(t)); diff != "" {
		t.Error(diff)
	}
	d.put(t, "10-x.conflist", `{"plugins":`)
	if err := d.Install(); err == nil || !strings.Contains(err.Error(), "10-x.conflist") {
		t.Errorf("half a file: %v", err)
	}
	if err := (Dir{Path: d.Path + "/none"}).Remove(); err != nil {
		t.Errorf("without a directory: %v", err)
	}
}

// A change that the owner writes between our reading and writing is preserved.
func TestTheOwnerWrites(t *testing.T) {
	d := newDir(t, map[string]string{"a.conflist": flannel})
	path := filepath.Join(d.Path, "a.conflist")
	newer := strings.Replace(flannel, "cbr0", "cbr1", 1)
	times := 0
	err := d.edit(path, func(text []byte) ([]byte, error) {
		if times++; times == 1 {
			d.put(t, "a.conflist", newer)
		}
		return Insert(text, plugin, entry)
	})
	if err != nil || times != 2 {
		t.Fatalf("%d attempts, %v", times, err)
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(map[string]string{"a.conflist": newer}, d.files(t)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	err = d.edit(path, func(text []byte) ([]byte, error) {
		return Insert(text, plugin, entry+strings.Repeat(" ", times))
	})
	if err != nil {
		t.Error(err)
	}
	err = d.edit(path, func(text []byte) ([]byte, error) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		return Remove(text, plugin)
	})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was removed: %v", err)
	}
	if got := d.files(t); len(got) != 0 {
		t.Errorf("there are %v", got)
	}
}

// The plugin is inserted when the configuration appears, and each time after it is rewritten, in place
// or by a rename.
func TestKeep(t *testing.T) {
	d := newDir(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	states := make(chan error, 1000)
	ended := make(chan error)
	go func() { ended <- d.Keep(ctx, func(err error) { states <- err }) }()
	await := func(what string, is func(error) bool) {
		t.Helper()
		timer := time.After(time.Minute)
		for {
			select {
			case err := <-states:
				if is(err) {
					return
				}
			case <-timer:
				t.Fatalf("never: %s; there is %v", what, d.files(t))
			}
		}
	}
	has := func(name, text string) func(error) bool {
		return func(err error) bool {
			want, _ := Insert([]byte(text), plugin, entry)
			return err == nil && d.files(t)[name] == string(want)
		}
	}
	await("nothing to change", func(err error) bool { return errors.Is(err, ErrNone) })
	d.put(t, "b.conflist", flannel)
	await("the first file has it", has("b.conflist", flannel))
	newer := strings.Replace(flannel, "cbr0", "cbr1", 1)
	d.put(t, "b.conflist", newer)
	await("the file that was written anew has it", has("b.conflist", newer))
	d.put(t, "temp", flannel)
	if err := os.Rename(filepath.Join(d.Path, "temp"), filepath.Join(d.Path, "a.conflist")); err != nil {
		t.Fatal(err)
	}
	await("a file that comes before has it", has("a.conflist", flannel))
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
