// Package archive reads archives (tar, tar.gz) and keeps their files compressed in memory. It writes nothing to disk.
// Archives may come from an attacker, so everything is limited.
package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
)

// Limits in addition to [Limits]. For comparison: archives of must-gather have 15 nested folders, and their content
// is ten times as large as the archive.
const (
	maxDepth = 64       // nested folders
	maxName  = 4096     // bytes of a path
	maxRatio = 200      // unpacked size divided by the compressed size; a file of zeros has 1,000
	freeSize = 64 << 20 // maxRatio applies only to archives with more unpacked bytes than this
)

var gzipMagic = []byte{0x1f, 0x8b}

// Compressed reports whether a text begins with the magic number of gzip.
func Compressed(head []byte) bool { return bytes.HasPrefix(head, gzipMagic) }

// Limits of a [Store]; all but Entry apply to the sum of its archives.
type Limits struct {
	Files         int   // number of files and of sections of files
	Unpack, Entry int64 // unpacked bytes of all files, and of one file
	Memory        int64 // bytes of memory for the compressed files
}

// A Store reads archives, and counts how much of its limits they use.
type Store struct {
	limits   Limits
	files    int
	unpacked int64 // bytes
	kept     int64 // bytes of memory
	flate    *flate.Writer
}

// New returns an empty store.
func New(l Limits) *Store {
	w, _ := flate.NewWriter(nil, flate.BestSpeed)
	return &Store{limits: l, flate: w}
}

// Read returns the files of an archive by their names, or false if the input is not an archive. If the archive is
// damaged, Read returns the files before the damage. It calls the function unused with ":NAME" for each entry that it
// does not return, and with an empty name for damage.
func (s *Store) Read(ctx context.Context, in *bufio.Reader, name string, unused func(entry, why string)) (files map[string]*Packed, is bool, err error) {
	head, _ := in.Peek(512)
	compressed := Compressed(head)
	read := &counter{Reader: in}
	u := &unpacking{ctx: ctx, from: read, packed: read, most: s.limits.Unpack}
	if compressed {
		z, err := gzip.NewReader(read)
		if err != nil {
			return nil, true, fmt.Errorf("it begins as gzip does, and is none: %w", err)
		}
		u.from = z
	}
	plain := bufio.NewReaderSize(u, 64<<10)
	if compressed {
		head, _ = plain.Peek(512)
	}
	files = map[string]*Packed{}
	switch {
	case isTar(head):
		err = s.untars(files, plain, unused)
	case compressed:
		name := strings.TrimSuffix(filepath.Base(name), ".gz")
		files[name], err = s.Pack(plain)
	default:
		return nil, false, nil
	}
	if damaged(err) {
		unused("", fmt.Sprintf("the archive is damaged or ends too early (%v): what comes before that is used", err))
		err = nil
	}
	return files, true, err
}

func isTar(head []byte) bool { return len(head) == 512 && string(head[257:262]) == "ustar" }

// untars reads all tars that follow one another in the input, up to its end, because gzip's checksum is there.
func (s *Store) untars(files map[string]*Packed, from *bufio.Reader, unused func(entry, why string)) error {
	for {
		if err := s.untar(files, from, unused); err != nil {
			return err
		}
		head, err := from.Peek(512)
		for ; err == nil && len(bytes.Trim(head, "\x00")) == 0; head, err = from.Peek(512) {
			if _, err := from.Discard(512); err != nil {
				return err
			}
		}
		if !isTar(head) {
			_, err := io.Copy(io.Discard, from)
			return err
		}
	}
}

// damaged reports whether an error means that the archive itself is damaged.
func damaged(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.As(err, &corrupt) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, tar.ErrHeader)
}

// untar reads the files of a tar.
func (s *Store) untar(files map[string]*Packed, from io.Reader, unused func(entry, why string)) error {
	last, folders := "", 0
	for t := tar.NewReader(from); ; {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after entry %.200q: %w", last, err)
		}
		last = h.Name
		name := path.Clean(h.Name)
		switch {
		case len(h.Name) > maxName:
			err = fmt.Errorf("its path has more than %d bytes", maxName)
		case strings.Count(name, "/") > maxDepth:
			err = fmt.Errorf("it is in more than %d folders in one another", maxDepth)
		case h.Typeflag == tar.TypeDir, h.Typeflag == tar.TypeXGlobalHeader:
			if folders++; folders > 4*s.limits.Files {
				err = fmt.Errorf("it is after %d folders", 4*s.limits.Files)
			}
		default:
			if err = s.Count(); err != nil {
				break
			}
			s.kept += int64(4 * len(name)) // estimated memory of the entry without its text
			switch {
			case path.IsAbs(name):
				unused(":"+name, "its path is absolute")
			case !filepath.IsLocal(name) || name == ".":
				unused(":"+name, "its path leads out of the archive")
			case h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse:
				unused(":"+name, "it is no regular file: links of archives are not followed")
			default:
				files[name], err = s.Pack(t)
			}
		}
		if err != nil {
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

// Count counts a file or a section of a file. It fails if there are more than [Limits.Files].
func (s *Store) Count() error {
	if s.files++; s.files > s.limits.Files {
		return fmt.Errorf("there are more than %d files: unpack an archive, and give a part of it, such as the folder of one namespace", s.limits.Files)
	}
	return nil
}

// An unpacking reads the unpacked content of an archive, and fails at a limit.
type unpacking struct {
	ctx        context.Context
	from       io.Reader
	packed     *counter
	size, most int64
}

func (u *unpacking) Read(p []byte) (int, error) {
	n, err := u.from.Read(p)
	u.size += int64(n)
	switch {
	case u.ctx.Err() != nil:
		return 0, u.ctx.Err()
	case u.size > u.most:
		return 0, tooMuch(u.most)
	case u.size > freeSize && u.size > maxRatio*u.packed.n:
		return 0, fmt.Errorf("it unpacks to more than %d times its size, as no log does", maxRatio)
	}
	return n, err
}

func tooMuch(most int64) error {
	return fmt.Errorf("all unpacks to more than %d MiB: unpack it, and give a part of it", most>>20)
}

// A counter counts the bytes that are read.
type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// piece is the unpacked size of the pieces of a [Packed], in bytes.
const piece = 256 << 10

// A Packed is a text that is compressed in memory. It consists of pieces that are compressed separately, so that any
// part of it can be read. Objects and logs shrink to a tenth of their size.
type Packed struct {
	pieces [][]byte
	size   int64
}

// Pack reads a text to its end and compresses it. If the text is itself compressed by gzip, it keeps only the magic
// number, because such content is not used. If the text ends with an error, Pack returns what it has read and the
// error.
func (s *Store) Pack(text io.Reader) (*Packed, error) {
	p, in := &Packed{}, bufio.NewReaderSize(text, 32<<10)
	if head, _ := in.Peek(len(gzipMagic)); Compressed(head) {
		text = bytes.NewReader(head)
	} else {
		text = in
	}
	for {
		var b bytes.Buffer
		s.flate.Reset(&b)
		n, err := io.CopyN(s.flate, text, piece)
		if n > 0 {
			s.flate.Close() // writes to memory do not fail
			p.pieces, p.size = append(p.pieces, bytes.Clone(b.Bytes())), p.size+n
			s.kept, s.unpacked = s.kept+int64(b.Len()), s.unpacked+n
		}
		switch {
		case p.size > s.limits.Entry:
			return p, fmt.Errorf("it has more than %d MiB", s.limits.Entry>>20)
		case s.unpacked > s.limits.Unpack: // checked here too, because holes of a tar add bytes that are not read
			return p, tooMuch(s.limits.Unpack)
		case s.kept > s.limits.Memory:
			return p, fmt.Errorf("with it, the files of archives take more than %d MiB of memory, compressed: unpack it, and give the folder", s.limits.Memory>>20)
		case err == io.EOF:
			return p, nil
		case err != nil:
			return p, err
		}
	}
}

// A Text is an open file, or a file of an archive.
type Text interface {
	io.ReaderAt
	io.Closer
}

// Open returns the text and its size in bytes. It never fails.
func (p *Packed) Open() (Text, int64, error) { return &unpacked{Packed: p, at: -1}, p.size, nil }

// An unpacked reads a Packed text. Only one goroutine may use it.
type unpacked struct {
	*Packed
	at   int // index of the current piece
	text []byte
}

func (u *unpacked) Close() error { return nil }

// ReadAt implements io.ReaderAt.
func (u *unpacked) ReadAt(p []byte, from int64) (n int, err error) {
	for n < len(p) {
		if from >= u.size {
			return n, io.EOF
		}
		if at := int(from / piece); at != u.at {
			u.at, u.text = at, append(u.text[:0], make([]byte, min(piece, u.size-int64(at)*piece))...)
			if _, err := io.ReadFull(flate.NewReader(bytes.NewReader(u.pieces[at])), u.text); err != nil {
				return n, err
			}
		}
		c := copy(p[n:], u.text[from%piece:])
		n, from = n+c, from+int64(c)
	}
	return n, nil
}
