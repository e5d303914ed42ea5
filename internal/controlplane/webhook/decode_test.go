package webhook

import (
	"bytes"
	"errors"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

// FuzzDecode: a pod is read as by the API server's own decoder. Only that one passes over a
// name that is twice in a field that nobody knows.
func FuzzDecode(f *testing.F) {
	for _, text := range pods {
		f.Add(podJSON(f, text))
	}
	for _, text := range []string{
		`{"SPEC":{"hostNetwork":true}}`, `{"spec":null,"metadata":{"labels":{"a":"\ud800\u00e9"}}}`, "{\"metadata\":{\"name\":\"\xff\xfe\"}}",
		`{"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"0.5","memory":1e3}},"ports":[{"containerPort":1.0}]},null]}}`,
		`{"metadata":{"creationTimestamp":"2026-01-02T03:04:05Z","managedFields":[{"fieldsV1":{"f:a":{}}}],"annotations":{"a":null}}}`,
		`{"spec":{"terminationGracePeriodSeconds":-0,"containers":[{"readinessProbe":{"httpGet":{"port":"http"},"tcpSocket":{"port":80}}}]}}`,
		`{"spec":{"x":{"a":1,"a":2}}}`, `{"spec":{},"spec":{}}`, `{"spec":{}} {}`, `[]`, `null`, ` `,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		var got, want corev1.Pod
		err := decode(object, &got)
		strict, theirs := kjson.UnmarshalStrict(object, &want, kjson.DisallowDuplicateFields)
		theirs = errors.Join(append(strict, theirs)...)
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			return // in a field that nobody knows
		case (err == nil) != (theirs == nil):
			t.Fatalf("%s\nerror %v, the API server's %v", bytes.ToValidUTF8(object, []byte("?")), err, theirs)
		case err != nil:
			return
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s\n(-as the API server +got):\n%s", object, diff)
		}
	})
}
