package validation

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"outrider.dev/internal/doctor/diagnose"
	"outrider.dev/internal/doctor/diagnose/follow"
	"outrider.dev/internal/doctor/diagnose/nopod"
	"outrider.dev/internal/doctor/diagnose/page"
	"outrider.dev/internal/doctor/diagnose/result"
	"outrider.dev/internal/doctor/evidence"
	"outrider.dev/internal/doctor/evidence/gather"
)

// schemaFile is the published schema of what outrider diagnose -o json prints.
const schemaFile = "../../docs/schemas/diagnosis-v1alpha1.json"

var update = flag.Bool("update", false, "write the published schema")

// The published schema is the one of the Go types: their fields, their comments, and the constants of their enumerations.
func TestSchemaOfReports(t *testing.T) {
	s := typeSchemas{t, map[string]any{}, map[string][]*ast.File{}}
	report, line := s.of(reflect.TypeFor[result.Report]()), s.of(reflect.TypeFor[follow.Line]())
	for _, of := range []string{"Report", "Line"} {
		s.defs[of].(map[string]any)["properties"].(map[string]any)["version"] = map[string]any{"const": result.Version}
	}
	text, err := json.MarshalIndent(map[string]any{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"$id":         "https://" + result.Version,
		"title":       "outrider diagnose -o json",
		"description": "The list of reports that outrider diagnose prints; with --watch each line is an object. Further fields may come within a version; durations are in nanoseconds.",
		"oneOf":       []any{map[string]any{"type": "array", "items": report}, line},
		"$defs":       s.defs,
	}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	if *update {
		if err := os.WriteFile(schemaFile, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	published, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(published), "\n"), strings.Split(string(text), "\n")); d != "" {
		t.Errorf("%s differs from the types; go test -run TestSchemaOfReports -update writes it, and what is no addition needs a new version (-published +types)\n%s", schemaFile, d)
	}
	if !strings.Contains(schemaFile, "-"+filepath.Base(result.Version)+".") {
		t.Errorf("%s has not the version of %s in its name", schemaFile, result.Version)
	}
}

// The reports of all incidents of the corpus fit the published schema, and reports that contradict it do not.
func TestReportsFitTheSchema(t *testing.T) {
	schema := compiled(t)
	const incidents = "../../testdata/incidents"
	all, err := os.ReadDir(incidents)
	if err != nil {
		t.Fatal(err)
	}
	var last string
	n := 0
	for _, folder := range all {
		if !folder.IsDir() {
			continue
		}
		n++
		set, err := gather.Read(t.Context(), gather.Options{}, filepath.Join(incidents, folder.Name()))
		if err != nil {
			t.Fatal(err)
		}
		reports := []result.Report{}
		for _, p := range set.Pods {
			r, err := diagnose.Diagnose(t.Context(), p, diagnose.Options{})
			if err != nil {
				t.Fatal(err)
			}
			reports = append(reports, r)
		}
		for _, w := range set.Creators {
			reports = append(reports, nopod.Creation(w, false))
		}
		var out bytes.Buffer
		if err := page.Write(&out, reports, page.Options{Format: "json"}); err != nil {
			t.Fatal(err)
		}
		if last == "" && strings.Contains(out.String(), `"certain"`) {
			last = out.String()
		}
		if err := fits(schema, out.String()); err != nil {
			t.Errorf("%s: %v", folder.Name(), err)
		}
	}
	if n < 100 {
		t.Errorf("%d incidents", n)
	}
	for _, r := range []*strings.Replacer{
		strings.NewReplacer(`"verdict": "found"`, `"verdict": "fine"`), strings.NewReplacer(`"certain"`, `"sure"`), strings.NewReplacer(`"pod": "`, `"pods": "`),
		strings.NewReplacer(result.Version, "outrider.dev/diagnosis/v0"), strings.NewReplacer(`"error": `, `"error": "`, `,`, `",`),
	} {
		if err := fits(schema, r.Replace(last)); err == nil {
			t.Errorf("a report that contradicts the schema fits it:\n%.2000s", r.Replace(last))
		}
	}
	if err := fits(schema, `{"version": "`+result.Version+`", "time": "2026-11-30T10:00:00Z", "summary": {"pods": 3, "complete": true}}`); err != nil {
		t.Errorf("the last line of --watch: %v", err)
	}
}

func compiled(t *testing.T) *jsonschema.Schema {
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func fits(schema *jsonschema.Schema, text string) error {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(doc)
}

// closed lists the types of which the schema has all values.
var closed = []reflect.Type{
	reflect.TypeFor[result.Verdict](), reflect.TypeFor[result.Confidence](), reflect.TypeFor[result.Role](), reflect.TypeFor[result.MarkKind](),
	reflect.TypeFor[result.StartState](), reflect.TypeFor[result.PhaseName](), reflect.TypeFor[evidence.Kind](),
}

// typeSchemas makes schemas of Go types.
type typeSchemas struct {
	t     *testing.T
	defs  map[string]any
	files map[string][]*ast.File // of each package
}

// of returns the schema of a type. Schemas of structs are in defs.
func (s *typeSchemas) of(t reflect.Type) map[string]any {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Pointer:
		return s.of(t.Elem())
	case t.Kind() == reflect.Slice:
		return map[string]any{"type": "array", "items": s.of(t.Elem())}
	case t.Kind() == reflect.Struct:
		if s.defs[t.Name()] == nil {
			def := map[string]any{"type": "object"}
			s.defs[t.Name()] = def
			s.describe(def, s.comment(t, ""))
			properties, required := map[string]any{}, []string{}
			s.fields(t, properties, &required)
			def["properties"], def["required"] = properties, required
		}
		return map[string]any{"$ref": "#/$defs/" + t.Name()}
	case slices.Contains(closed, t):
		values, meanings := s.values(t)
		schema := map[string]any{"enum": values}
		s.describe(schema, strings.Join(meanings, "; "))
		return schema
	case t.Kind() == reflect.String:
		return map[string]any{"type": "string"}
	case t.Kind() == reflect.Bool:
		return map[string]any{"type": "boolean"}
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return map[string]any{"type": "integer"}
	}
	s.t.Fatalf("a field of type %s", t)
	return nil
}

// fields adds the fields of a struct, and of the structs that it embeds.
func (s *typeSchemas) fields(t reflect.Type, properties map[string]any, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.fields(f.Type, properties, required)
			continue
		case !f.IsExported() || name == "-":
			continue
		case name == "":
			s.t.Errorf("%s.%s has no name in JSON", t, f.Name)
		}
		schema := s.of(f.Type)
		s.describe(schema, s.comment(t, f.Name))
		properties[name] = schema
		if options == "" {
			*required = append(*required, name)
		}
	}
}

func (s *typeSchemas) describe(schema map[string]any, comment string) {
	if comment != "" {
		schema["description"] = comment
	}
}

// parse returns the source of the package of a type, which is of Outrider's module.
func (s *typeSchemas) parse(pkg string) []*ast.File {
	if s.files[pkg] == nil {
		files, err := filepath.Glob(filepath.Join("../..", strings.TrimPrefix(pkg, "outrider.dev/"), "*.go"))
		if err != nil || len(files) == 0 {
			s.t.Fatalf("%s: %d files, %v", pkg, len(files), err)
		}
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				s.t.Fatal(err)
			}
			s.files[pkg] = append(s.files[pkg], f)
		}
	}
	return s.files[pkg]
}

// comment returns the comment of a type, or of one of its fields.
func (s *typeSchemas) comment(t reflect.Type, field string) (text string) {
	for _, f := range s.parse(t.PkgPath()) {
		for _, d := range f.Decls {
			g, is := d.(*ast.GenDecl)
			if !is || g.Tok != token.TYPE || g.Specs[0].(*ast.TypeSpec).Name.Name != t.Name() {
				continue
			}
			if field == "" {
				text = g.Doc.Text()
				break
			}
			for _, of := range g.Specs[0].(*ast.TypeSpec).Type.(*ast.StructType).Fields.List {
				if slices.ContainsFunc(of.Names, func(n *ast.Ident) bool { return n.Name == field }) {
					text = of.Doc.Text() + of.Comment.Text()
				}
			}
		}
	}
	return strings.Join(strings.Fields(text), " ")
}

// values returns the constants of a type in their order, and the comments beside them.
func (s *typeSchemas) values(t reflect.Type) (values, meanings []string) {
	for _, f := range s.parse(t.PkgPath()) {
		eachConstant(f, func(_, kind string, value ast.Expr, comment string) {
			lit, is := value.(*ast.BasicLit)
			if !is || kind != t.Name() {
				return
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				s.t.Fatal(err)
			}
			values = append(values, text)
			if comment != "" {
				meanings = append(meanings, text+": "+strings.TrimSpace(comment))
			}
		})
	}
	if len(values) == 0 {
		s.t.Errorf("%s has no constants", t)
	}
	return values, meanings
}
