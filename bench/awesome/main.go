// Command awesome measures how much later an application serves when it takes its settings from a
// configuration centre: the time from exec to the line "awesome-app is ready", for each language of
// examples/awesome-app. The baseline, in the same run, is the robust form without a centre, which
// fetches nothing. In each round every case runs once, in random order. The command never fails because
// of a measured time.
//
//	go run ./bench/awesome -n 20
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"outrider.dev/bench/internal/figures"
	"outrider.dev/test/awesome"
	"outrider.dev/test/process"
)

func main() {
	n := flag.Int("n", 20, "starts of each case")
	root := flag.String("root", ".", "the repository's folder")
	only := flag.String("languages", strings.Join(awesome.Languages, ","), "those that are measured")
	figures.Main(func() error { return measure(*n, *root, strings.Split(*only, ","), os.Stdout) }, "n")
}

// A way is one case: a form of the application, and the configuration centre it runs with.
type way struct{ name, form, centre string }

func measure(n int, root string, languages []string, stdout io.Writer) error {
	dir, err := os.MkdirTemp("", "bench-awesome.")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	missing, err := awesome.Install(root, dir)
	if err != nil {
		return err
	}
	ways, end, err := centres()
	if err != nil {
		return err
	}
	defer end()

	t := &figures.Table{}
	type start struct {
		language string
		way
	}
	var all []start
	for _, language := range languages {
		if !slices.Contains(awesome.Languages, language) {
			return fmt.Errorf("-languages: %q: one of %s", language, strings.Join(awesome.Languages, ", "))
		}
		if err := missing[language]; err != nil {
			fmt.Fprintf(stdout, "%s is not measured: %v\n", language, err)
			continue
		}
		for _, w := range ways {
			all = append(all, start{language, w})
			t.Rows = append(t.Rows, &figures.Row{Title: language + ", " + w.name, What: "ms", Baseline: language + ", " + ways[0].name})
		}
	}
	for range n + 1 {
		for _, k := range rand.Perm(len(all)) {
			took, err := once(awesome.Command(dir, all[k].language, all[k].form), all[k].centre)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", all[k].language, all[k].name, err)
			}
			t.Add(all[k].language+", "+all[k].name, "ms", took.Seconds()*1e3, "")
		}
	}
	for _, r := range t.Rows {
		r.Values = r.Values[1:] // the first start of each form reads its program from disk
	}
	if err := t.Print(stdout, "ratio"); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, "Load average at the end:", figures.Load())
	return err
}

// centres returns the configuration centres of the cases. The first case is the baseline.
func centres() (ways []way, end func(), err error) {
	live := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "level=INFO\n") }))
	dead, err := net.Dial("tcp", live.Listener.Addr().String()) // nothing listens on the local port of this connection
	if err != nil {
		return nil, nil, err
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, but nothing reads from them
	if err != nil {
		return nil, nil, err
	}
	return []way{
		{"robust, no centre", awesome.Robust, ""},
		{"robust, centre answers", awesome.Robust, live.URL},
		{"robust, centre refuses", awesome.Robust, "http://" + dead.LocalAddr().String()},
		{"robust, centre is silent", awesome.Robust, "http://" + silent.Addr().String()},
		{"fragile, centre answers", awesome.Fragile, live.URL},
	}, func() { dead.Close(); live.Close(); silent.Close() }, nil
}

// once starts an application, and returns the time until it serves.
func once(command []string, centre string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = []string{"PORT=0", "CONFIG_URL=" + centre}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := process.StartBound(cmd); err != nil {
		return 0, err
	}
	var took time.Duration
	lines := bufio.NewScanner(out)
	for took == 0 && lines.Scan() {
		if strings.Contains(lines.Text(), "awesome-app is ready") {
			took = time.Since(began)
		}
	}
	cancel()
	_ = cmd.Wait() // it was killed
	if took == 0 {
		return 0, errors.New("it ended before it was ready")
	}
	return took, nil
}
