package main

import (
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// Every pod that podspec is tested with is drawn as well-formed XML, with each
// container in it.
func TestEveryPodIsDrawn(t *testing.T) {
	files, err := filepath.Glob("../../internal/pod/podspec/testdata/pods/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%v, %d files", err, len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			plans, err := (&planOptions{kube: 34}).read(newPlan(), file)
			if err != nil {
				t.Fatal(err)
			}
			svg := planSVG(plans)
			d := xml.NewDecoder(strings.NewReader(svg))
			for err == nil {
				_, err = d.Token()
			}
			if !errors.Is(err, io.EOF) {
				t.Fatalf("%v\n%s", err, svg)
			}
			for _, c := range plans[0].Containers {
				if !strings.Contains(svg, ">"+c.Name+"<") {
					t.Errorf("%s is not in the picture", c.Name)
				}
			}
		})
	}
}

func TestColoursAreOnlyAdded(t *testing.T) {
	o := planOptions{kube: 34, output: "text", advise: true}
	plans, err := o.read(newPlan(), "../../internal/pod/podspec/testdata/pods/asked.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var plain, coloured printer
	coloured.colour = true
	plain.plan(plans[0])
	coloured.plan(plans[0])
	text := coloured.String()
	for _, code := range []string{"0", bold, red, green, yellow, faint} {
		text = strings.ReplaceAll(text, "\x1b["+code+"m", "")
	}
	if text != plain.String() || text == coloured.String() {
		t.Errorf("without its colours:\n%s\nwant:\n%s", text, plain.String())
	}
}
