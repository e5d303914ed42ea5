package cli

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// maxInput is the maximum size of an input in bytes. It is bounded because a YAML decoder needs about 30 times as
// much memory. A dump of 10,000 pods has 100 MB.
const maxInput = 256 << 20

// fetchTimeout is the maximum time for getting the content of a URL.
const fetchTimeout = time.Minute

// Read returns the content of a file or of a URL, and its name for messages. The file "-" is standard input. More
// than maxInput bytes are an error.
func Read(cmd *cobra.Command, file string) (name string, data []byte, err error) {
	name, from := "standard input", cmd.InOrStdin()
	switch {
	case isURL(file):
		ctx, cancel := context.WithTimeout(cmd.Context(), fetchTimeout)
		defer cancel()
		body, err := fetch(ctx, file)
		if err != nil {
			return file, nil, err
		}
		defer body.Close()
		name, from = file, body
	case file != "-":
		f, err := os.Open(file)
		if err != nil {
			return file, nil, err
		}
		defer f.Close()
		name, from = file, f
	}
	data, err = io.ReadAll(io.LimitReader(from, maxInput+1))
	switch {
	case err != nil:
		err = fmt.Errorf("reading %s: %w", name, err)
	case len(data) > maxInput:
		err = fmt.Errorf("%s has more than %d MiB: want smaller files, each with a part of the documents", name, maxInput>>20)
	}
	return name, data, err
}

func isURL(file string) bool {
	return strings.HasPrefix(file, "https://") || strings.HasPrefix(file, "http://")
}

// fetch returns the body of a URL. A status other than 200 is an error.
func fetch(ctx context.Context, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("%s: the server answers %s", url, res.Status)
	}
	return res.Body, nil
}

// Expand returns the names, with each folder replaced by the YAML and JSON files in it and below it, sorted by
// name. Hidden files and folders are skipped. Names of files stay as they are.
func Expand(names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		info, err := os.Stat(name)
		if name == "-" || isURL(name) || err != nil || !info.IsDir() {
			out = append(out, name) // for a missing file, Read will report the error
			continue
		}
		files, err := Manifests(name)
		if err != nil {
			return nil, err
		}
		out = append(out, files...)
	}
	return out, nil
}

// Manifests returns the YAML and JSON files of a folder and of the folders below it, without hidden files and
// folders. If there is none, it returns an error.
func Manifests(folder string) (out []string, err error) {
	err = filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		hidden := file != folder && strings.HasPrefix(d.Name(), ".")
		switch {
		case err != nil:
			return err
		case hidden && d.IsDir():
			return fs.SkipDir
		case !hidden && !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(file)):
			out = append(out, file)
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s has no file that ends with .yaml, .yml or .json", folder)
	}
	return out, err
}

// Manifest is the usage text of a flag whose values [ReadAll] reads.
const Manifest = "manifests: a file or folder in YAML or JSON, a URL, or '-' for standard input; may be repeated"

// ReadAll calls the function each with the name and content of every file, in order; names may contain folders
// ([Expand]). It stops at the first error.
func ReadAll(cmd *cobra.Command, names []string, each func(name string, data []byte) error) error {
	files, err := Expand(names)
	if err != nil {
		return err
	}
	for _, file := range files {
		name, data, err := Read(cmd, file)
		if err == nil {
			err = each(name, data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// FirstError returns the first error in the results of a command, or nil.
func FirstError[T interface{ Err() error }](results []T) error {
	for _, r := range results {
		if err := r.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Note prints a message to standard error that requires no action. It prints nothing if the message is empty.
func Note(cmd *cobra.Command, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: note: %s\n", cmd.Root().Name(), text)
	}
}
