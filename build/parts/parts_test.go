package parts_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"outrider.dev/build/parts"
)

// The same parts give the same bill of materials. A test in test/images checks the bill of a real program.
func TestMaterials(t *testing.T) {
	all := []parts.Part{{Name: "example.com/own"}, {Name: "example.com/a", Version: "v1.0.0", URL: "pkg:golang/example.com/a@v1.0.0"}}
	var first, second bytes.Buffer
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := errors.Join(parts.Materials(&first, "agent", "1.2.3", at, all), parts.Materials(&second, "agent", "1.2.3", at, all)); err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(first.Bytes()), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() || len(*bom.Components) != 1 || bom.Metadata.Timestamp != "2026-01-02T03:04:05Z" || bom.Metadata.Component.Version != "1.2.3" {
		t.Errorf("the bill has %+v", bom)
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
