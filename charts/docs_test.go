package charts_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"outrider.dev/charts"
)

// A row is a comment of values.yaml, with the values to which it applies.
type row struct {
	meaning string
	values  []string // values with their defaults
}

// rowsOf reads the comments of a mapping. A value without a comment belongs to the comment before it.
func rowsOf(t *testing.T, parent, comment string, m *yaml.Node, stop map[string]schema, rows []row) []row {
	t.Helper()
	for i := 0; i < len(m.Content); i += 2 {
		key, value := m.Content[i], m.Content[i+1]
		path := strings.TrimPrefix(parent+"."+key.Value, ".")
		own := strings.ReplaceAll(strings.ReplaceAll(key.HeadComment, "\n# ", " "), "# ", "")
		if value.Kind == yaml.MappingNode && stop[path] == nil {
			if own == "" && i == 0 {
				own = comment
			}
			rows = rowsOf(t, path, own, value, stop, rows)
			continue
		}
		if own == "" && i == 0 {
			own = comment
		}
		var v any
		if err := value.Decode(&v); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if own != "" {
			rows = append(rows, row{meaning: own})
		}
		if len(rows) == 0 {
			t.Fatalf("%s has no comment", path)
		}
		last := &rows[len(rows)-1]
		last.values = append(last.values, fmt.Sprintf("`%s`: `%s`", path, strings.ReplaceAll(string(text), ":", ": ")))
	}
	return rows
}

// The page docs/install.md lists each value with its default and its comment. "go test -update" writes it.
func TestThePageHasEveryValue(t *testing.T) {
	const page, mark = "../docs/install.md", "<!-- written by go test ./charts -run TestThePageHasEveryValue -update -->\n"
	source, err := charts.Files.ReadFile("outrider/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(source, &document); err != nil {
		t.Fatal(err)
	}
	all := leaves("", readSchema(t))
	want, found := "\n| value and default | meaning |\n| --- | --- |\n", 0
	for _, r := range rowsOf(t, "", "", document.Content[0], all, nil) {
		want += "| " + strings.Join(r.values, "<br>") + " | " + strings.ReplaceAll(r.meaning, "|", `\|`) + " |\n"
		found += len(r.values)
	}
	for _, s := range all { // any order: a count
		if !without(s) {
			found--
		}
	}
	if found != 0 {
		t.Errorf("the table has %d values more than the schema", found)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, after, ok := strings.Cut(string(text), mark)
	if !ok {
		t.Fatalf("%s has no line %q", page, mark)
	}
	if *update {
		if err := os.WriteFile(page, []byte(before+mark+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(want, after); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
