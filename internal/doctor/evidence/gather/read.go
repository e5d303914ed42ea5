package gather

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/archive"
	"outrider.dev/internal/doctor/evidence/described"
	"outrider.dev/internal/doctor/evidence/pasted"
)

// Options are the limits of [Read]. The zero value of a field means its default.
type Options struct {
	Stdin   io.Reader // input for "-"
	Files   int       // files in all folders and archives; default 50,000
	Objects int64     // bytes of one file of objects; default 64 MiB
	Unpack  int64     // unpacked bytes of all archives and standard input; default 4 GiB
	Entry   int64     // bytes of one file in an archive; default 1 GiB
	Memory  int64     // bytes of memory for the compressed files of archives; objects may take twice as much; default 256 MiB
}

func (o Options) defaults() Options {
	o.Files, o.Objects, o.Memory = cmp.Or(o.Files, 50_000), cmp.Or(o.Objects, 64<<20), cmp.Or(o.Memory, 256<<20)
	o.Unpack, o.Entry = cmp.Or(o.Unpack, 4<<30), cmp.Or(o.Entry, 1<<30)
	return o
}

// Read collects evidence from files, folders, archives (tar, tar.gz) and standard input ("-"). It fails only if a
// path cannot be read at all, if a limit for files or archives is exceeded, or if the input contains no pod. All
// other problems are noted in the result.
func Read(ctx context.Context, o Options, paths ...string) (*evidence.Set, error) {
	o = o.defaults()
	r := &reader{o: o, bundle: newBundle(2 * o.Memory), store: archive.New(archive.Limits{Files: o.Files, Unpack: o.Unpack, Entry: o.Entry, Memory: o.Memory})}
	for _, p := range paths {
		if err := r.path(ctx, p); err != nil {
			return nil, err
		}
	}
	pods, unused := r.finish(ctx)
	creators := r.creators()
	if len(pods)+len(creators) == 0 {
		err := fmt.Errorf("%s: no pod in it; want the object of a pod, as kubectl get pod NAME -o yaml prints it, or what kubectl describe pod NAME prints", strings.Join(paths, ", "))
		if len(unused) > 0 {
			err = fmt.Errorf("%w; %s: %s", err, unused[0].Source, unused[0].Why)
		}
		return nil, err
	}
	set := &evidence.Set{Pods: pods, Creators: creators, Unused: unused}
	set.Owners, set.Configs = r.others()
	r.noteUnused(set)
	return set, nil
}

// A reader walks through the input.
type reader struct {
	*bundle
	o     Options
	store *archive.Store
	files []string // that were read
}

// An opener opens a text, and returns its size in bytes.
type opener func() (archive.Text, int64, error)

// onDisk returns an opener for a file on disk.
func onDisk(open func() (*os.File, error)) opener {
	return func() (archive.Text, int64, error) {
		f, err := open()
		if err != nil {
			return nil, 0, err
		}
		info, err := f.Stat()
		if err != nil {
			return nil, 0, errors.Join(err, f.Close())
		}
		return f, info.Size(), nil
	}
}

// path reads a file, a folder, an archive, or standard input ("-").
func (r *reader) path(ctx context.Context, p string) error {
	if p == "-" {
		return r.stdin(ctx)
	}
	info, err := os.Stat(p)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return r.folder(ctx, p)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file, folder or archive", p)
	}
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	if is, err := r.archive(ctx, bufio.NewReaderSize(f, 64<<10), p); is {
		return within(p, err)
	}
	return r.file(onDisk(func() (*os.File, error) { return os.Open(p) }), filepath.Base(p), p, single)
}

// stdin reads standard input.
func (r *reader) stdin(ctx context.Context) error {
	if r.o.Stdin == nil {
		return errors.New("- needs a standard input")
	}
	const name = "standard input"
	in := bufio.NewReaderSize(r.o.Stdin, 64<<10)
	if is, err := r.archive(ctx, in, name); is {
		return within(name, err)
	}
	p, err := r.store.Pack(in)
	if err != nil {
		return within(name, err)
	}
	return r.file(p.Open, "stdin", name, single)
}

// archive reads an archive. It returns false if the input is not an archive.
func (r *reader) archive(ctx context.Context, in *bufio.Reader, shown string) (bool, error) {
	files, is, err := r.store.Read(ctx, in, shown, func(entry, why string) { r.unused(evidence.Source{File: shown + entry}, "%s", why) })
	for _, name := range slices.SortedFunc(maps.Keys(files), asFolders) {
		if err != nil {
			break
		}
		if hidden := strings.HasPrefix(name, ".") || strings.Contains(name, "/."); !hidden {
			err = r.file(files[name].Open, name, shown+":"+name, path.Join(filepath.ToSlash(shown)+":", path.Dir(name)))
		}
		delete(files, name) // frees the memory of a file that is not used
	}
	return is, err
}

// asFolders compares paths in the order in which [fs.WalkDir] visits files.
func asFolders(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) }

// within prefixes an error with the name of its source.
func within(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", name, err)
	}
	return err
}

// folder reads all files of a folder, sorted by name. It does not follow links that lead out of the folder.
func (r *reader) folder(ctx context.Context, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(file string, d fs.DirEntry, err error) error {
		shown := path.Join(filepath.ToSlash(dir), file)
		from := evidence.Source{File: shown}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if file == "." {
				return err
			}
			r.unused(from, "%v", err)
			return nil
		case file != "." && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return nil
		}
		info, err := root.Stat(file) // follows links within the folder
		switch {
		case err != nil && d.Type()&fs.ModeSymlink != 0:
			r.unused(from, "a link out of the folder, or to nothing, is not followed")
			return nil
		case err != nil:
			r.unused(from, "%v", err)
			return nil
		case info.IsDir():
			r.unused(from, "a link to a folder is not followed")
			return nil
		case !info.Mode().IsRegular():
			r.unused(from, "it is no regular file")
			return nil
		}
		if err := r.store.Count(); err != nil {
			return within(dir, err)
		}
		if is, err := r.inner(ctx, root, file, shown); is {
			return within(shown, err)
		}
		return r.file(onDisk(func() (*os.File, error) { return os.OpenInRoot(dir, file) }), file, shown, path.Dir(shown))
	})
}

// archiveEnds are the file name extensions of archives.
var archiveEnds = []string{".tar", ".gz", ".tgz"}

// inner reads an archive that lies in a folder. It returns false if the file is none by its name and its content.
func (r *reader) inner(ctx context.Context, root *os.Root, file, shown string) (bool, error) {
	if !slices.Contains(archiveEnds, path.Ext(file)) {
		return false, nil
	}
	f, err := root.Open(file)
	if err != nil {
		return false, nil // which the reading of the file notes
	}
	defer f.Close()
	is, err := r.archive(ctx, bufio.NewReaderSize(f, 64<<10), shown)
	if errors.Is(err, gzip.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		r.unused(evidence.Source{File: shown}, "%v", err) // the rest of the folder is read
		err = nil
	}
	return is, err
}

// objectEnds are the file name extensions of files with objects. Files with an extension in logEnds may be logs.
var (
	objectEnds = []string{".yaml", ".yml", ".json"}
	logEnds    = []string{".log", ".txt", ".out", ""}
	runEnds    = []string{".tail", ".err", ".prev", ".previous", ".old", ".last"} // of logs whose names say which part or run it is
)

// file determines the kind of a file by its name and content, and reads it.
func (r *reader) file(open opener, file, shown, folder string) error {
	f, size, err := open()
	if err != nil {
		r.unused(evidence.Source{File: shown}, "%v", err)
		return nil
	}
	defer f.Close()
	in := bufio.NewReaderSize(io.NewSectionReader(f, 0, size), 64<<10)
	head, err := in.Peek(64 << 10)
	if err != nil && err != io.EOF {
		r.unused(evidence.Source{File: shown}, "%v", err)
		return nil
	}
	from := evidence.Source{Kind: evidence.FromLog, File: shown}
	r.files, r.folders[shown] = append(r.files, shown), folder
	base := path.Base(file)
	end := path.Ext(base)
	trimmed := bytes.TrimLeft(head, " \t\r\n\ufeff")
	switch {
	case r.ofReport(base, head, in, from):
		r.use(from)
	case len(trimmed) == 0:
		r.use(from) // it says that there is nothing
		if slices.Contains(logEnds, end) && !strings.HasSuffix(base, ".insecure.log") {
			r.addLog(open, folder, from, 0, -1).empty = true
		}
	case bytes.Contains(head, []byte("==== START logs for container ")):
		return within(shown, r.sections(in, open, folder, from))
	case (slices.Contains(logEnds, end) || slices.Contains(runEnds, end)) && len(pasted.Streams(head)) > 1:
		r.streams(in, open, folder, from)
	case slices.Contains(noteEnds, end), end != ".log" && slices.Contains(logEnds, end) && pasted.Is(head, false):
		r.ticket(in, open, folder, from)
	case slices.Contains(objectEnds, end), end == "" && isObject(trimmed):
		r.readObjects(in, open, folder, from)
	case slices.Contains(logEnds, end) && described.Is(head):
		r.text(in, open, folder, from)
	case end != ".log" && slices.Contains(logEnds, end) && pasted.ObjectsIn(head) != nil:
		r.readObjects(in, open, folder, from)
	case strings.Contains(base, "stats") || end == ".prom":
		r.unused(from, "statistics of Envoy are not read")
	default:
		if why := noLog(head, base); why != "" {
			r.unused(from, "%s", why)
			r.addBeside(logIn(open, folder, from, 0, -1), head)
		} else {
			r.addLog(open, folder, from, 0, -1).text = slices.Clone(head[:min(len(head), evidence.MostInstead+1)])
		}
	}
	return nil
}

// ofReport reads a file that only a bug report contains. It returns false for every other file.
func (r *reader) ofReport(base string, head []byte, in io.Reader, from evidence.Source) bool {
	switch {
	case base == "index.json" && bytes.Contains(head, []byte(`"format"`)) && bytes.Contains(head, []byte(`"made"`)):
		r.index(in, from)
	case base == "errors.txt":
		r.errors(in, from)
	default:
		return false
	}
	return true
}

// otherTable matches the head of a table of kubectl get of which nothing is read.
var otherTable = regexp.MustCompile(`^\s*(?:NAMESPACE[ \t]+)?NAME[ \t]{2,}(?:[A-Z][-A-Z() ]*[ \t]{2,})*AGE\b`)

// noLog returns the reason why a file is not a log, or an empty string if it may be one.
func noLog(head []byte, base string) string {
	end := path.Ext(base)
	switch {
	case archive.Compressed(head):
		return "it is compressed: give it by itself, or decompress it"
	case bytes.HasPrefix(head, []byte("PK\x03\x04")):
		return "a zip is not read: pack its files with tar"
	case slices.Contains(archiveEnds, end):
		return "it is no archive of tar or gzip, or one without files"
	case otherTable.Match(head):
		return "a table of kubectl get: only those of pods, nodes and events are read"
	case !slices.Contains(logEnds, end) && !slices.Contains(runEnds, end) && !strings.Contains(base, ".log."):
		return fmt.Sprintf("%s is neither the name of objects (%s) nor of a log (.log, .txt, .out)", end, strings.Join(objectEnds, ", "))
	}
	return ""
}

func isObject(text []byte) bool {
	return bytes.HasPrefix(text, []byte("{")) && bytes.Contains(text, []byte(`"kind"`)) || bytes.HasPrefix(text, []byte("apiVersion:")) || bytes.HasPrefix(text, []byte("kind:")) ||
		bytes.HasPrefix(text, []byte("---\n")) || bytes.Contains(text, []byte(`"process_started"`))
}

func (r *reader) readObjects(in io.Reader, open opener, folder string, from evidence.Source) {
	r.other = false
	data, err := io.ReadAll(io.LimitReader(in, r.o.Objects+1))
	switch {
	case err != nil:
		r.unused(from, "%v", err)
	case int64(len(data)) > r.o.Objects:
		r.unused(from, "it has more than %d MiB of objects: give those of one namespace, or of one pod", r.o.Objects>>20)
	case !slices.Contains(objectEnds, path.Ext(from.File)) && pasted.ObjectsIn(data) != nil: // perhaps with prose around them
		r.parse(folder, from.File, pasted.ObjectsIn(data))
	default:
		r.parse(folder, from.File, data)
	}
	if r.other {
		r.addBeside(logIn(open, folder, from, 0, -1), data[:min(len(data), mostBegin)])
	}
}

// addLog adds a log, as logIn returns it.
func (r *reader) addLog(open opener, folder string, from evidence.Source, begin, size int64) *placedLog {
	r.logs = append(r.logs, logIn(open, folder, from, begin, size))
	return &r.logs[len(r.logs)-1]
}

// logIn returns a log: the part of a file that starts at the offset begin and has size bytes. If size is negative, the
// log extends to the end of the file.
func logIn(open opener, folder string, from evidence.Source, begin, size int64) placedLog {
	part := func() (archive.Text, int64, error) {
		f, end, err := open()
		if size >= 0 {
			end = begin + size
		}
		return f, end, err
	}
	whole := func(context.Context) (io.ReadCloser, error) {
		f, end, err := part()
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{io.NewSectionReader(f, begin, end-begin), f}, nil
	}
	tail := func(most int) ([]byte, error) {
		f, end, err := part()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return io.ReadAll(io.NewSectionReader(f, max(begin, end-int64(most)), int64(most)))
	}
	return placedLog{Log: evidence.NewLog(from, whole, tail), name: nameOf(from.File), folder: folder}
}

// sections reads a file of kubectl cluster-info dump. That is the logs.txt of a pod, or the whole dump in one stream,
// which also contains objects.
func (r *reader) sections(in *bufio.Reader, file opener, folder string, from evidence.Source) error {
	var at, begin int64
	var open []string
	var object bytes.Buffer
	for {
		line, err := in.ReadSlice('\n')
		m := section.FindSubmatch(bytes.TrimRight(line, "\r\n"))
		switch {
		case m != nil && string(m[1]) == "START":
			begin, open = at+int64(len(line)), []string{string(m[2]), string(m[3]), string(m[4])}
			if err := r.store.Count(); err != nil {
				return err
			}
		case m != nil && open != nil && string(m[2]) == open[0]:
			r.section(file, folder, from, open, begin, at-begin)
			open = nil
		case open == nil && m == nil && int64(object.Len()) < r.o.Objects:
			object.Write(line)
		}
		at += int64(len(line))
		if err != nil && err != bufio.ErrBufferFull {
			break
		}
	}
	if open != nil {
		r.section(file, folder, from, open, begin, at-begin).Truncated = true
	}
	if isObject(bytes.TrimSpace(object.Bytes())) {
		r.parse(folder, from.File, object.Bytes())
	}
	return nil
}

func (r *reader) section(file opener, folder string, from evidence.Source, of []string, begin, size int64) *placedLog {
	l := r.addLog(file, folder, from, begin, size)
	l.name = name{container: of[0], namespace: of[1], pod: of[2], run: -1}
	return l
}

// index reads the index of a bug report. It has the time of the report, and the names of truncated logs.
func (r *reader) index(in io.Reader, from evidence.Source) {
	var index struct {
		Made  time.Time `json:"made"`
		Files []struct {
			Path      string `json:"path"`
			Truncated bool   `json:"truncated"`
		} `json:"files"`
	}
	if err := json.NewDecoder(io.LimitReader(in, maxObject)).Decode(&index); err != nil {
		r.unused(from, "this is no index of a bug report: %v", err)
		return
	}
	r.taken = evidence.Time{At: index.Made, Error: time.Minute, Clock: evidence.NodeClock} // by the clock of the machine that made the report
	for _, f := range index.Files {
		if f.Truncated && len(r.cut) < r.o.Files {
			r.cut = append(r.cut, strings.TrimSuffix(from.File, "index.json")+f.Path)
		}
	}
}

// maxFailures limits the failures that are read of a bug report, which has at most one for each log.
const maxFailures = 10_000

// errors reads the file of a bug report that lists the evidence which could not be collected.
func (r *reader) errors(in io.Reader, from evidence.Source) {
	text, err := io.ReadAll(io.LimitReader(in, 1<<20))
	if err != nil {
		r.unused(from, "%v", err)
	}
	for line := range strings.Lines(string(text)) {
		if len(r.failures) == maxFailures {
			break
		}
		r.failures = append(r.failures, strings.TrimSpace(line))
	}
}
