// Command release writes the documents for an archive with programs: the licences of all modules that they link
// to FOLDER/licences, and the bill of materials to FOLDER/sbom.cdx.json. The bill has the name of the first
// program. build/release.sh calls it.
//
//	go run ./build/release FOLDER PROGRAM...
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"outrider.dev/build/commands"
	"outrider.dev/build/parts"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: go run ./build/release FOLDER PROGRAM...")
		os.Exit(2)
	}
	if err := write(context.Background(), os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "release: error: %v\n", err)
		os.Exit(1)
	}
}

func write(ctx context.Context, dir string, programs []string) error {
	all, err := parts.Of(ctx, programs...)
	if err != nil {
		return err
	}
	if err := parts.Licences(filepath.Join(dir, "licences"), all); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, "sbom.cdx.json"))
	if err != nil {
		return err
	}
	stamp := commands.StampOf(ctx)
	return errors.Join(parts.Materials(f, strings.TrimSuffix(filepath.Base(programs[0]), ".exe"), stamp.Version, stamp.Time, all), f.Close())
}
