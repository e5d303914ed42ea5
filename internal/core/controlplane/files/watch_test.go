package files

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outrider.dev/internal/base/contract"
	"outrider.dev/test/process"
)

const patience = time.Minute

// watched is a test with a folder that is watched.
type watched struct {
	*testing.T
	dir string
	*Source
}

func watching(t *testing.T, dir string) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Watch(ctx, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		<-s.Done()
	})
	return &watched{t, dir, s}
}

func (w *watched) write(name, text string) {
	w.Helper()
	write(w.T, filepath.Join(w.dir, name), text)
}

// put writes a file by renaming a temporary file in the same folder.
func (w *watched) put(name, text string) {
	w.Helper()
	w.write(name+".new", text)
	w.do(os.Rename(filepath.Join(w.dir, name+".new"), filepath.Join(w.dir, name)))
}

func (w *watched) do(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// expect waits until the mesh has exactly these services, each with the number of its first port, and the
// folder has this number of problems.
func (w *watched) expect(when string, problems int, services ...string) {
	w.Helper()
	timeout := time.After(patience)
	want := strings.Join(services, " ")
	for {
		m, newer := w.Current()
		p, otherProblems := w.Problems()
		var got []string
		for _, s := range m.Services() {
			got = append(got, fmt.Sprintf("%s:%d", s.Name, s.Ports[0].Number))
		}
		if strings.Join(got, " ") == want && len(p) == problems {
			return
		}
		select {
		case <-newer:
		case <-otherProblems:
		case <-timeout:
			w.Fatalf("%s: services %q, want %q; %d problems wanted: %v", when, strings.Join(got, " "), want, problems, p)
		}
	}
}

func text(name string, port int) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {ports: [{port: %d}]}\n", name, port)
}

func TestAFolderIsFollowed(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), text("a", 1))
	w := watching(t, dir)
	path := func(name string) string { return filepath.Join(dir, name) }
	w.expect("at first", 0, "a:1")
	w.write("b.yaml", text("b", 1))
	w.expect("created", 0, "a:1", "b:1")
	w.write("a.yaml", text("a", 2))
	w.expect("changed in place", 0, "a:2", "b:1")
	w.put("a.yaml", text("a", 3))
	w.expect("replaced", 0, "a:3", "b:1")
	w.write("a.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 0}]}\n")
	w.expect("bad: the old stays", 1, "a:3", "b:1")
	w.write("a.yaml", "apiVersion: [")
	w.expect("bad in another way", 1, "a:3", "b:1")
	w.write("a.yaml", text("a", 4))
	w.expect("corrected", 0, "a:4", "b:1")
	w.do(os.Rename(path("b.yaml"), path("c.yaml")))
	w.write("d.yaml", text("d", 1))
	w.expect("renamed", 0, "a:4", "b:1", "d:1")
	w.do(os.Rename(path("c.yaml"), path("c.txt")))
	w.expect("renamed to a name that is not a manifest's", 0, "a:4", "d:1")
	w.do(os.Rename(path("c.txt"), path("c.yaml")))
	w.expect("and back", 0, "a:4", "b:1", "d:1")
	w.do(os.Remove(path("d.yaml")))
	w.expect("deleted", 0, "a:4", "b:1")
	w.write("sub/deep/e.yaml", text("e", 1))
	w.expect("in new folders", 0, "a:4", "b:1", "e:1")
	w.write("sub/deep/e.yaml", text("e", 2))
	w.expect("changed there", 0, "a:4", "b:1", "e:2")
	w.do(os.Rename(path("sub"), path("other")))
	w.write("other/deep/f.yaml", text("f", 1))
	w.expect("in a renamed folder", 0, "a:4", "b:1", "e:2", "f:1")
	w.write("other/deep/f.yaml", text("f", 2))
	w.expect("changed in a renamed folder", 0, "a:4", "b:1", "e:2", "f:2")
	w.do(os.RemoveAll(path("other")))
	w.expect("without the folder", 0, "a:4", "b:1")
	w.write("z.yaml", text("a", 9))
	w.expect("twice: the first by path counts", 1, "a:4", "b:1")
	w.do(os.Remove(path("a.yaml")))
	w.expect("the second takes over", 0, "a:9", "b:1")
}

func TestNamespacesAreFollowed(t *testing.T) {
	dir := t.TempDir()
	namespace := func(name, value string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {a: %s}}\n", name, value)
	}
	write(t, filepath.Join(dir, "a.yaml"), namespace("n", "1"))
	write(t, filepath.Join(dir, "b.yaml"), namespace("n", "2")+"---\n"+namespace("m", "2"))
	w := watching(t, dir)
	is := func(name, want string) {
		t.Helper()
		process.Retry(t, func() error {
			ns, _ := w.Namespace(name)
			if ns.Labels["a"] == want {
				return nil
			}
			return fmt.Errorf("namespace %s has labels %v, want a: %s", name, ns.Labels, want)
		})
	}
	is("n", "1") // the first one by path
	is("m", "2")
	w.write("b.yaml", namespace("m", "3")+"---\n"+text("wrong", 0))
	is("m", "3") // although another object in the file has a problem
	w.do(os.Remove(filepath.Join(dir, "a.yaml")))
	is("n", "")
}

func TestABadFileStaysOutUntilItIsGoodOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), text("a", 0)+"---\n"+text("b", 1))
	w := watching(t, dir)
	w.expect("bad from the start", 1)
	w.write("a.yaml", text("a", 1)+"---\n"+text("b", 1))
	w.expect("good", 0, "a:1", "b:1")
	w.write("a.yaml", text("a", 1)+"---\n"+text("b", 0))
	w.expect("bad", 1, "a:1", "b:1")
	w.do(os.Remove(filepath.Join(dir, "a.yaml")))
	w.expect("deleted while it is bad", 0)
}

// In a ConfigMap's volume, the files are links into the folder ..data. The folder ..data is itself a link,
// which is replaced at each update.
func TestAConfigMapIsFollowed(t *testing.T) {
	dir := t.TempDir()
	version := 0
	publish := func(files map[string]string) {
		t.Helper()
		version++
		data := fmt.Sprintf("..2026_%d", version)
		for name, text := range files {
			write(t, filepath.Join(dir, data, name), text)
		}
		old, _ := os.Readlink(filepath.Join(dir, "..data"))
		for _, err := range []error{
			os.Symlink(data, filepath.Join(dir, "..data_tmp")),
			os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for name := range files {
			top, _, _ := strings.Cut(name, "/")
			_ = os.Symlink(filepath.Join("..data", top), filepath.Join(dir, top))
		}
		if old != "" {
			if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish(map[string]string{"a.yaml": text("a", 1), "sub/b.yaml": text("b", 1)})
	w := watching(t, dir)
	w.expect("at first", 0, "a:1", "b:1")
	for i := 2; i < 6; i++ {
		publish(map[string]string{"a.yaml": text("a", i), "sub/b.yaml": text("b", i)})
		w.expect("swapped", 0, fmt.Sprint("a:", i), fmt.Sprint("b:", i))
	}
	publish(map[string]string{"a.yaml": text("a", 7), "sub/b.yaml": text("b", 0)})
	w.expect("a bad file", 1, "a:7", "b:5")
	publish(map[string]string{"a.yaml": text("a", 8), "sub/b.yaml": text("b", 8), "c.yaml": text("c", 8)})
	w.expect("one more", 0, "a:8", "b:8", "c:8")
}

func TestLinks(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	file := filepath.Join(outside, "a.yaml")
	write(t, file, text("a", 1))
	w := watching(t, dir)
	w.expect("nothing", 0)
	w.do(os.Symlink(file, filepath.Join(dir, "a.yaml")))
	w.expect("a link to a file outside", 0, "a:1")
	write(t, file, text("a", 2))
	w.expect("changed outside", 0, "a:2")
	w.do(os.Symlink(".", filepath.Join(dir, "loop")))
	w.expect("a link to its own folder", 1, "a:2")
	w.do(os.Remove(filepath.Join(dir, "loop")))
	w.do(os.Symlink("b", filepath.Join(dir, "b")))
	w.expect("a link to itself", 1, "a:2")
	w.do(os.Remove(filepath.Join(dir, "b")))
	w.do(os.Remove(file))
	w.expect("a link without a target", 1)
}

func TestTheFolderItselfIsReplaced(t *testing.T) {
	above := t.TempDir()
	dir := filepath.Join(above, "mesh")
	for i, v := range []string{"v1", "v2"} {
		write(t, filepath.Join(above, v, "a.yaml"), text("a", i+1))
	}
	if err := os.Symlink("v1", dir); err != nil {
		t.Fatal(err)
	}
	w := watching(t, dir)
	w.expect("at first", 0, "a:1")
	w.do(os.Symlink("v2", dir+".new"))
	w.do(os.Rename(dir+".new", dir))
	w.expect("another link", 0, "a:2")
	w.write("a.yaml", text("a", 3))
	w.expect("changed in the second", 0, "a:3")
	w.do(os.Remove(dir))
	w.expect("gone: its former content stays in use", 1, "a:3")
	w.write("b.yaml", text("b", 1))
	w.expect("back, as a folder", 0, "b:1")
	w.write("b.yaml", text("b", 2))
	w.expect("changed in it", 0, "b:2")
	w.do(os.Rename(dir, dir+".old")) // at once: if files were moved one by one, each would count as deleted
	w.expect("moved away: its former content stays in use", 1, "b:2")
}

func TestWhatDidNotChangeIsNotPublished(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), text("a", 1))
	w := watching(t, dir)
	before, _ := w.Current()
	w.put("a.yaml", "# a comment\n"+text("a", 1)) // the file has changed, but the object in it has not
	w.write("b.yaml", text("b", 1))
	w.expect("with another service", 0, "a:1", "b:1")
	after, newer := w.Current()
	if before.ByName("default", "a") != after.ByName("default", "a") {
		t.Error("a service that did not change has another pointer")
	}
	w.write("c.yaml", "bad") // this file's problem shows that the folder was read again
	w.expect("with a problem", 1, "a:1", "b:1")
	select {
	case <-newer:
		t.Error("a change of the mesh was published")
	default:
	}
	if same, _ := w.Current(); same != after {
		t.Error("there is another mesh")
	}
}

// Unchanged parts keep their pointers, so that only changes are sent to proxies.
func TestUnchangedPartsKeepTheirPointers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.yaml")
	write(t, path, text("a", 1)+"---\n"+text("b", 1))
	first := read(dir, "a.yaml", nil)
	write(t, path, "# moved\n---\n"+text("a", 2)+"---\n"+text("b", 1))
	second := read(dir, "a.yaml", first)
	var same []string
	for key, place := range second.parts {
		if first.parts[key].part == place.part {
			same = append(same, fmt.Sprint(key, " line ", place.line))
		}
	}
	if diff := cmp.Diff([]string{"Service default/b line 8"}, same); diff != "" || len(second.parts) != 2 {
		t.Errorf("unchanged parts (-want +got):\n%s", diff)
	}
	for sum, d := range first.documents { // any order: each is compared for itself
		if kept, ok := second.documents[sum]; ok && kept.objects[0].Part != d.objects[0].Part {
			t.Errorf("%v was parsed again", d.objects[0])
		}
	}
}

// The log says of a manifest with a part that has no effect that it is used.
func TestEffectOfProblem(t *testing.T) {
	for severity, want := range map[string]string{"": "manifest not used", contract.ErrorPrefix: "manifest not used", contract.WarningPrefix: "manifest used, but not all of it has an effect"} {
		if got := (Problem{Severity: severity}).effect(); got != want {
			t.Errorf("%q: %s, want %s", severity, got, want)
		}
	}
}
