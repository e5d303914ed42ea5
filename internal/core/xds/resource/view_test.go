package resource_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"outrider.dev/internal/core/xds"
)

// A view writes resources so that a person can review them, and leaves nothing out: a value that fits into a line
// is written in one line. Extensions, and values that occur twice, are written once, as parts with a name.
type view struct {
	strings.Builder
	seen  map[string]int    // how often an object occurs
	names map[string]string // of parts
	parts []part
}

type part struct {
	name  string
	value map[string]any
}

// width is the maximum length of a line without its indentation.
const width = 130

// plain matches strings that need no quotes.
var plain = regexp.MustCompile(`^[\w.|/@#%()-]+(:[\w.|/@#%()-]+)*$`)

// viewsOf returns the texts of the golden files by name: the case "a: b" is in the file "a", and parts that occur
// more than once are in the file "parts".
func viewsOf(t *testing.T, cases map[string][]xds.Dependency) map[string]string {
	t.Helper()
	v := &view{seen: map[string]int{}, names: map[string]string{}}
	decoded := map[string][]map[string]any{}
	for name, resources := range cases { // any order: each is only counted
		for _, n := range resources {
			raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(n.Resource.Body)
			var m map[string]any
			if err := errors.Join(err, json.Unmarshal(raw, &m)); err != nil {
				t.Fatal(err)
			}
			v.count(m)
			decoded[name] = append(decoded[name], m)
		}
	}
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		file, what, _ := strings.Cut(name, ": ")
		fmt.Fprintf(v, "# %s\n", what)
		for _, m := range decoded[name] {
			v.write("- ", "  ", "resource", m)
		}
		out[file] += v.String()
		v.Reset()
	}
	for i := 0; i < len(v.parts); i++ { // a part may add others
		fmt.Fprintf(v, "%s:\n", v.parts[i].name)
		v.fields("  ", "  ", v.parts[i].value)
	}
	out["parts"] = v.String()
	return out
}

// count counts objects; those in an object that was seen before are not counted again.
func (v *view) count(x any) {
	switch x := x.(type) {
	case map[string]any:
		text := key(x)
		if v.seen[text]++; v.seen[text] > 1 {
			return
		}
		for _, child := range x { // any order: each is only counted
			v.count(child)
		}
	case []any:
		for _, child := range x {
			v.count(child)
		}
	}
}

func key(x any) string {
	raw, _ := json.Marshal(x) // it was decoded from JSON
	return string(raw)
}

// write writes a value after its key, in one line if it fits.
func (v *view) write(before, indent, name string, x any) {
	if line := v.line(name, x); len(line) <= width {
		fmt.Fprintf(v, "%s%s\n", before, line)
		return
	}
	switch x := x.(type) {
	case map[string]any:
		if strings.HasSuffix(before, "- ") {
			v.fields(before, indent, x)
			return
		}
		fmt.Fprintln(v, strings.TrimRight(before, " "))
		v.fields(indent, indent, x)
	case []any:
		fmt.Fprintln(v, strings.TrimRight(before, " "))
		for _, child := range x {
			v.write(indent+"- ", indent+"  ", name, child)
		}
	default:
		fmt.Fprintf(v, "%s%s\n", before, v.line(name, x))
	}
}

func (v *view) fields(first, indent string, x map[string]any) {
	for _, k := range slices.Sorted(maps.Keys(x)) {
		v.write(first+k+": ", indent+"  ", k, x[k])
		first = indent
	}
}

// line returns a value as one line, or the name of the part that contains it.
func (v *view) line(field string, x any) string {
	switch x := x.(type) {
	case map[string]any:
		_, extension := x["typed_config"]
		text := key(x)
		if extension && len(text) > width/2 {
			return v.name(field, text, x)
		}
		var out []string
		for _, k := range slices.Sorted(maps.Keys(x)) {
			out = append(out, k+": "+v.line(k, x[k]))
		}
		line := "{" + strings.Join(out, ", ") + "}"
		if len(line) > width && v.seen[text] > 1 {
			return v.name(field, text, x)
		}
		return line
	case []any:
		var out []string
		for _, child := range x {
			out = append(out, v.line(field, child))
		}
		return "[" + strings.Join(out, ", ") + "]"
	case string:
		x = strings.TrimPrefix(x, xds.TypePrefix+"envoy.")
		if !plain.MatchString(x) {
			return strconv.Quote(x)
		}
		return x
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return fmt.Sprint(x)
}

// name returns the name of an object that is written at the end: its type or its field, what it is
// called, and a number if others have the same name.
func (v *view) name(field, text string, x map[string]any) string {
	if v.names[text] != "" {
		return v.names[text]
	}
	name, of := field, x
	if config, ok := x["typed_config"].(map[string]any); ok {
		of = config
	}
	if typeURL, ok := of["@type"].(string); ok {
		name = typeURL[strings.LastIndexByte(typeURL, '.')+1:]
	}
	if extension, ok := x["name"].(string); ok && name == "Config" {
		name = extension[strings.LastIndexByte(extension, '.')+1:]
	}
	for _, k := range []string{"name", "stat_prefix", "cluster_name"} {
		if called, ok := of[k].(string); ok {
			name += "(" + called + ")"
			break
		}
	}
	same := 1
	for _, p := range v.parts {
		if p.name == name || strings.HasPrefix(p.name, name+"#") {
			same++
		}
	}
	if same > 1 {
		name += fmt.Sprint("#", same)
	}
	v.names[text], v.parts = name, append(v.parts, part{name, x})
	return name
}
