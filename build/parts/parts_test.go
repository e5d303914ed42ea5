package parts_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"outrider.dev/build/commands"
	"outrider.dev/build/parts"
)

func TestPartsOfAProgram(t *testing.T) {
	dir := t.TempDir()
	if err := commands.Build(t.Context(), dir, commands.Agent); err != nil {
		t.Fatal(err)
	}
	all, err := parts.Of(t.Context(), filepath.Join(dir, commands.Agent))
	if err != nil {
		t.Fatal(err)
	}
	if all[0].Name != "outrider.dev" {
		t.Errorf("the first part is %s", all[0].Name)
	}
	if err := parts.Licences(filepath.Join(dir, "licences"), all); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if found, err := os.ReadDir(filepath.Join(dir, "licences", filepath.FromSlash(p.Name))); err != nil || len(found) == 0 {
			t.Errorf("%s: %v, %d licences", p.Name, err, len(found))
		}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var first, second bytes.Buffer
	if err := errors.Join(parts.Materials(&first, "agent", "1.2.3", at, all), parts.Materials(&second, "agent", "1.2.3", at, all)); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() {
		t.Error("two bills of the same parts differ")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(&first, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if len(*bom.Components) != len(all)-1 || bom.Metadata.Timestamp != "2026-01-02T03:04:05Z" || bom.Metadata.Component.Version != "1.2.3" {
		t.Errorf("the bill has %d components of %d parts: %+v", len(*bom.Components), len(all), bom.Metadata)
	}
}

func TestAPartWithoutALicenceIsAnError(t *testing.T) {
	none := t.TempDir()
	err := parts.Licences(t.TempDir(), []parts.Part{{Name: "example.com/none", Licences: none}})
	if err == nil || !strings.Contains(err.Error(), "example.com/none") {
		t.Error(err)
	}
}

func TestWhatIsNoProgramOfGo(t *testing.T) {
	if _, err := parts.Of(t.Context(), "/etc/passwd"); err == nil {
		t.Error("a text file has parts")
	}
}
