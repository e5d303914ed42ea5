package offline

import (
	"testing"

	"outrider.dev/internal/pod/inject"
	"outrider.dev/test/corpus"
)

// What "outrider inject" does with one file, beside the start of its process: read, inject, write. The files
// are those of the corpus in turn.
func BenchmarkInjectFile(b *testing.B) {
	all, err := corpus.Sane()
	if err != nil {
		b.Fatal(err)
	}
	var files []File
	for _, f := range all {
		files = append(files, File{Name: f.Name, Data: f.Data})
	}
	o := Options{Namespace: "shop", Inject: inject.Options{Manual: true, Kubernetes: 34}}
	for i := 0; b.Loop(); i++ {
		if _, err := Inject(files[i%len(files):i%len(files)+1], o, func(Message) {}); err != nil {
			b.Fatal(err)
		}
	}
}
