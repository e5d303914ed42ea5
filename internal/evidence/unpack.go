package evidence

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

var gzipMagic = []byte{0x1f, 0x8b}

// unpack unpacks an archive into a folder; "" if the file is none. Nothing is written outside of the
// folder, links are not made. What comes after a damage is lost, what was before it is used.
func (r *reader) unpack(ctx context.Context, file, shown string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 64<<10)
	head, _ := in.Peek(512)
	var from io.Reader = in
	packed := bytes.HasPrefix(head, gzipMagic)
	if packed {
		z, err := gzip.NewReader(in)
		if err != nil {
			return "", fmt.Errorf("it begins as gzip does, and is none: %w", err)
		}
		plain := bufio.NewReaderSize(z, 64<<10)
		head, _ = plain.Peek(512)
		from = plain
	}
	isTar := len(head) == 512 && string(head[257:262]) == "ustar"
	if !packed && !isTar {
		return "", nil
	}
	dir, err := r.temporary()
	if err != nil {
		return "", err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if isTar {
		err = r.untar(ctx, root, from, shown)
	} else {
		err = r.write(root, strings.TrimSuffix(filepath.Base(shown), ".gz"), from)
	}
	if damaged(err) {
		r.unused(Source{File: shown}, "the archive is damaged or ends too early (%v): what comes before that is used", err)
		err = nil
	}
	return dir, err
}

// damaged reports whether an error is of the archive's own text.
func damaged(err error) bool {
	var flate interface{ Error() string }
	if err == nil || !errors.As(err, &flate) {
		return false
	}
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, tar.ErrHeader) || strings.HasPrefix(flate.Error(), "flate: ")
}

func (r *reader) untar(ctx context.Context, root *os.Root, from io.Reader, shown string) error {
	for t := tar.NewReader(from); ; {
		h, err := t.Next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		name := path.Clean(strings.TrimLeft(h.Name, "/"))
		in := Source{File: shown + ":" + name}
		switch {
		case h.Typeflag == tar.TypeDir, h.Typeflag == tar.TypeXGlobalHeader:
			continue
		case !filepath.IsLocal(name):
			r.unused(in, "its path leads out of the archive")
			continue
		case h.Typeflag != tar.TypeReg:
			r.unused(in, "it is no regular file: links of archives are not followed")
			continue
		}
		if r.files++; r.files > r.o.Files {
			return fmt.Errorf("it has more than %d files: unpack it and give a part of it, such as the folder of one namespace", r.o.Files)
		}
		if err := r.write(root, name, t); err != nil {
			var p *os.PathError
			if errors.As(err, &p) && !damaged(err) {
				r.unused(in, "%v", p.Err) // a name that is too long, or of a file and of a folder
				continue
			}
			return err
		}
	}
}

// write writes one file, within the limit of all.
func (r *reader) write(root *os.Root, name string, from io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(from, r.o.Unpack-r.written+1))
	r.written += n
	if err == nil && r.written > r.o.Unpack {
		err = fmt.Errorf("it unpacks to more than %d MiB: unpack it and give a part of it", r.o.Unpack>>20)
	}
	return errors.Join(err, f.Close())
}
