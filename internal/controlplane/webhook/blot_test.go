package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"outrider.dev/internal/pod/inject"
)

// ordinal is the n-th pod of a StatefulSet, as its controller and the service account's
// admission make it.
func ordinal(t testing.TB, n int) []byte {
	return podJSON(t, fmt.Sprintf(`
metadata:
  name: shop-%[1]d
  generateName: shop-
  labels: {app: shop, apps.kubernetes.io/pod-index: "%[1]d", statefulset.kubernetes.io/pod-name: shop-%[1]d}
  ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: shop, uid: u, controller: true}]
spec:
  hostname: shop-%[1]d
  subdomain: shop
  volumes: [{name: data, persistentVolumeClaim: {claimName: data-shop-%[1]d}}, {name: kube-api-access-aaaa%[1]d, emptyDir: {}}]
  containers: [{name: app, image: shop, command: [/app], volumeMounts: [{name: data, mountPath: /data}, {name: kube-api-access-aaaa%[1]d, mountPath: /t}]}]`, n))
}

func TestPodsOfOneTemplateAreInjectedOnce(t *testing.T) {
	selective := inject.Options{}
	if err := json.Unmarshal([]byte(`{"sidecarInjectorWebhook":{"neverInjectSelector":[{"matchLabels":{"apps.kubernetes.io/pod-index":"2"}}]}}`), &selective.Values); err != nil {
		t.Fatal(err)
	}
	edit := func(object []byte, old, new string) []byte {
		if !bytes.Contains(object, []byte(old)) {
			t.Fatalf("no %s in %s", old, object)
		}
		return bytes.Replace(object, []byte(old), []byte(new), 1)
	}
	tests := map[string]struct {
		first, second []byte
		options       inject.Options
		remembered    uint64
	}{
		"two of a StatefulSet":            {first: ordinal(t, 1), second: ordinal(t, 2), remembered: 1},
		"a selector asks for their label": {first: ordinal(t, 1), second: ordinal(t, 2), options: selective},
		"nobody controls them, so they are called after themselves": {
			first: edit(ordinal(t, 1), `"controller":true,`, ``), second: edit(ordinal(t, 2), `"controller":true,`, ``)},
		"their owner is no controller": {
			first: edit(ordinal(t, 1), `"controller":true,`, `"controller":false,`), second: edit(ordinal(t, 2), `"controller":true,`, `"controller":false,`)},
		"another image":              {first: ordinal(t, 1), second: edit(ordinal(t, 2), `"image":"shop"`, `"image":"ship"`)},
		"another label":              {first: ordinal(t, 1), second: edit(ordinal(t, 2), `"app":"shop"`, `"app":"ship"`)},
		"another owner":              {first: ordinal(t, 1), second: edit(ordinal(t, 2), `"name":"shop"`, `"name":"ship"`)},
		"a name elsewhere":           {first: ordinal(t, 1), second: edit(ordinal(t, 2), `"name":"app"`, `"name":"shop-2"`)},
		"a field twice":              {first: ordinal(t, 1), second: edit(ordinal(t, 2), `"hostname":`, `"hostname":"a","hostname":`)},
		"a name that is no string":   {first: ordinal(t, 1), second: edit(ordinal(t, 2), `"name":"shop-2"`, `"name":2`)},
		"a list that is no list":     {first: ordinal(t, 1), second: edit(ordinal(t, 2), `"volumes":[`, `"volumes":[[],`)},
		"what is said of the object": {first: ordinal(t, 1), second: []byte(`"shop-2"`)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := New(Options{Inject: tt.options, Namespaces: enabled})
			fresh := New(Options{Inject: tt.options, Namespaces: enabled, Limits: Limits{Memory: -1}})
			for i, object := range [][]byte{tt.first, tt.second} {
				got, want := asJSON(t, decided(t, w, "shop", object)), asJSON(t, decided(t, fresh, "shop", object))
				if got != want {
					t.Errorf("answer %d is\n%s\nand would be\n%s", i, got, want)
				}
			}
			if n := w.Counters().Remembered; n != tt.remembered {
				t.Errorf("%d answers were remembered, want %d", n, tt.remembered)
			}
		})
	}
}

func asJSON(t *testing.T, r response) string {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// FuzzBlots: whatever is blotted out of an object, each blot stands for a string, and what
// is around them is the object's.
func FuzzBlots(f *testing.F) {
	f.Add(ordinal(f, 1))
	for _, text := range []string{`{"metadata":{"name":"\"","ownerReferences":[{"controller":true}]}}`, `{"spec":{"hostname":"a"`, `[{"spec":1}]`, `"a"`, `{"metadata" : { "name" : "a" , "name":"b"}}`} {
		f.Add([]byte(text))
	}
	unread := unreadBy(inject.Options{})
	f.Fuzz(func(t *testing.T, object []byte) {
		if bytes.Contains(object, []byte(blot)) {
			return
		}
		given := bytes.Clone(object)
		got, err := blotted(object, unread)
		if !bytes.Equal(given, object) {
			t.Fatal("the object was changed")
		}
		if err != nil {
			return
		}
		rest := object
		for i, part := range bytes.Split(got, []byte(blot)) {
			if i > 0 { // a string is between this part and the one before
				var s json.RawMessage
				in := json.NewDecoder(bytes.NewReader(bytes.ToValidUTF8(rest, []byte("?"))))
				if err := in.Decode(&s); err != nil || s[0] != '"' {
					t.Fatalf("a blot for %s: %v", rest, err)
				}
				rest = rest[len(s):]
			}
			if !bytes.HasPrefix(rest, part) {
				t.Fatalf("%s\nbecame\n%s", object, got)
			}
			rest = rest[len(part):]
		}
		if len(rest) > 0 || !strings.HasPrefix(strings.TrimSpace(string(object)), "{") && len(got) != len(object) {
			t.Fatalf("%s\nbecame\n%s", object, got)
		}
	})
}
