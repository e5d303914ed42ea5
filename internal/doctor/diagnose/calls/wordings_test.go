package calls

import (
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outrider.dev/internal/doctor"
	"outrider.dev/internal/doctor/evidence/gather"
)

//go:embed testdata/wordings.txt
var wordingRows string

// none is the failure of a row whose text is no failed call.
const none Failure = "none"

// A wording is a row of testdata/wordings.txt, which explains the columns.
type wording struct {
	row         int
	client      string
	failure     Failure
	destination string
	text        string
}

func wordingsOf(t *testing.T, rows string) (out []wording) {
	t.Helper()
	for row := range strings.Lines(rows) {
		out = append(out, wording{row: len(out) + 1})
		w := &out[len(out)-1]
		if row = strings.TrimRight(row, "\n"); row == "" || row[0] == '#' {
			continue
		}
		cells := strings.SplitN(row, " | ", 4)
		if len(cells) < 4 {
			t.Fatalf("row %d has %d columns of 4: %s", w.row, len(cells), row)
		}
		w.client, w.failure, w.destination = cells[0], Failure(cells[1]), cells[2]
		w.text = strings.NewReplacer("⏎", "\n", "⇥", "\t").Replace(cells[3])
	}
	return out
}

// written returns a destination in the form of the rows.
func written(d doctor.Destination) string {
	if !d.Known() {
		return "-"
	}
	text := d.Host
	if strings.Contains(text, ":") && d.Network != doctor.Unix {
		text = "[" + text + "]"
	}
	if d.Name != "" {
		text = d.Name + "/" + text
	}
	if d.Port > 0 {
		text = fmt.Sprintf("%s:%d", text, d.Port)
	}
	return strings.TrimSpace(string(d.Network) + " " + text)
}

// Every row is read as it says, each as the log of a container of its own. The test prints precision and recall of all
// rows: a reading is right if there is a failed call where there is one, of the same kind and to the same destination.
func TestWordings(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rows := wordingsOf(t, wordingRows)
	var containers, states []string
	for _, w := range rows {
		if w.client == "" {
			continue
		}
		containers = append(containers, fmt.Sprintf(`{"name":"c%d"}`, w.row))
		states = append(states, fmt.Sprintf(`{"name":"c%d","restartCount":0,"state":{"running":{}}}`, w.row))
		write(fmt.Sprintf("c%d.log", w.row), w.text+"\n")
	}
	write("pod.json", fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"shop"},"spec":{"containers":[%s]},"status":{"containerStatuses":[%s]}}`, strings.Join(containers, ","), strings.Join(states, ",")))
	set, err := gather.Read(t.Context(), gather.Options{}, dir)
	if err != nil {
		t.Fatal(err)
	}
	read, err := Read(t.Context(), set.Pods[0], nil, false)
	if err != nil {
		t.Fatal(err)
	}
	var right, kind, found, wanted int
	for _, w := range rows {
		if w.client == "" {
			continue
		}
		failure, destination := none, "-"
		if of := read.Calls.By(fmt.Sprintf("c%d", w.row)); len(of) > 0 {
			failure, destination = of[0].Failure, written(of[0].To)
		}
		if failure != none {
			found++
		}
		if w.failure != none {
			wanted++
			if failure == w.failure {
				kind++
			}
			if failure == w.failure && destination == w.destination {
				right++
			}
		}
		if failure != w.failure || destination != cmp.Or(w.destination, "-") {
			t.Errorf("testdata/wordings.txt:%d: %s: read as %q to %s, want %q to %s\n%s", w.row, w.client, failure, destination, w.failure, w.destination, w.text)
		}
	}
	t.Logf("%d rows with a failed call: precision %.1f %% (%d of %d), recall %.1f %% (%d of %d); of the right kind, whatever the destination: %.1f %%, %.1f %%",
		wanted, 100*float64(right)/float64(found), right, found, 100*float64(right)/float64(wanted), right, wanted,
		100*float64(kind)/float64(found), 100*float64(kind)/float64(wanted))
}
