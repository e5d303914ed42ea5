package kube

import (
	"encoding/hex"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outrider.dev/internal/base/contract"
)

func TestWhichUsedTokensAreForgotten(t *testing.T) {
	now := time.Now()
	sum := [32]byte{1}
	const ours = contract.UsedTokenPrefix
	used := func(name, at string, labels map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{usedKey: hex.EncodeToString(make([]byte, 32)), usedTime: at}}
	}
	name, old := ours+hex.EncodeToString(sum[:]), now.Add(-UsedTokenKept-time.Minute).UTC().Format(time.RFC3339)
	noKey := used(name, old, madeHere)
	noKey.Data[usedKey] = "x"
	for what, tt := range map[string]struct {
		m        *corev1.ConfigMap
		declared bool
		want     bool
	}{
		"old, and no Host has it":       {used(name, old, madeHere), false, true},
		"old, and a Host has it":        {used(name, old, madeHere), true, false},
		"new":                           {used(name, now.UTC().Format(time.RFC3339), madeHere), false, false},
		"not made here":                 {used(name, old, map[string]string{"app": "outriderd"}), false, false},
		"a time that cannot be read":    {used(name, "yesterday", madeHere), false, false},
		"a key that cannot be read":     {noKey, false, false},
		"another name":                  {used("x", old, madeHere), false, false},
		"a name without the whole sum":  {used(ours+"01", old, madeHere), false, false},
		"a name with more than the sum": {used(name+"00", old, madeHere), false, false},
	} {
		if got := expired(tt.m, func(s [32]byte) bool { return s == sum && tt.declared }, now); got != tt.want {
			t.Errorf("%s: %v, want %v", what, got, tt.want)
		}
	}
}
